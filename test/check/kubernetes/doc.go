// Package kubernetes checks what installs railscope in a cluster: the Helm chart
// over its values files, and the kustomizations. All that they render is decoded
// into the types of Kubernetes and of the Prometheus operator, where a field that
// there is not is an error, and must hold what docs/kubernetes.md promises. It is
// a module of its own, because it takes Helm and Kubernetes. No cluster is needed,
// and none has seen any of it.
package kubernetes
