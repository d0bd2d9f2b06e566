// Package lab holds the end-to-end tests of railscope: they run inside the
// first of two machines in QEMU that are joined by one Ethernet segment per
// rail, with the kernel's own Soft-RoCE, bonding and traffic shaping. Nothing
// is mocked. The tests are behind the build tag lab, but that of retry.sh; run.sh
// builds and runs them, README.md says more.
package lab
