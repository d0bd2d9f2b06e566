// Package lab holds the end-to-end tests of railscope. They run in the first of two QEMU machines that are
// connected by one Ethernet segment per rail, with the kernel's own Soft-RoCE, bonding and traffic shaping. Nothing
// is mocked. The tests have the build tag lab; run.sh builds and runs them. See README.md.
package lab
