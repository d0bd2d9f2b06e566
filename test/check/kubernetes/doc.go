// Package kubernetes checks the installation in a cluster: the Helm chart with its values files, and the
// kustomizations. Their output is decoded into the types of Kubernetes and of the Prometheus operator, in which an
// unknown field is an error, and must fulfil what docs/kubernetes.md promises. It is a separate module because it
// depends on Helm and Kubernetes. It needs no cluster, and nothing is tested in one.
package kubernetes
