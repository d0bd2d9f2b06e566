package config

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Expect is what the rails of this node should be.
type Expect struct {
	Rate float64 // of every port, bytes per second; 0: not said
}

// Bounds of expect.rate, in bits per second.
const (
	leastRate = 1e6
	mostRate  = 10e12
)

// expectKeys are the keys below expect.
func (p parser) expectKeys(e *Expect) []key {
	return []key{
		written("rate", "rate", "that of the port; nothing of a software device", "from 1Mb/s to 10000Gb/s",
			"Rate that the port of every rail should have, such as `400Gb/s`: [what is expected](probe.md#degraded) of a rail is worked out with it, also of a software device (rxe, siw).",
			func(n *yaml.Node) error {
				if n.Kind != yaml.ScalarNode {
					return p.errorf(n, "expect.rate must be a rate, such as 400Gb/s, not %s", kindName(n))
				}
				rate, err := parseRate(n.Value)
				if err != nil {
					return p.errorf(n, "expect.rate: %w", err)
				}
				e.Rate = rate
				return nil
			}),
	}
}

// parseRate parses bits per second, 400Gb/s or 2.5Gb/s, and returns bytes.
func parseRate(s string) (float64, error) {
	for suffix, unit := range map[string]float64{"Gb/s": 1e9, "Mb/s": 1e6} {
		number, found := strings.CutSuffix(s, suffix)
		if !found {
			continue
		}
		v, err := strconv.ParseFloat(number, 64)
		if err == nil && v*unit >= leastRate && v*unit <= mostRate {
			return v * unit / 8, nil
		}
	}
	return 0, fmt.Errorf("%q is not a rate from 1Mb/s to 10000Gb/s; write a number with Gb/s or Mb/s, such as 400Gb/s", s)
}
