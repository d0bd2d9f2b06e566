//go:build !race

package pattern

func reads([]byte)  {}
func writes([]byte) {}
