//go:build cgo

package probe

const builtWithC = true
