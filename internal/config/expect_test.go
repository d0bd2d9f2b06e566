package config_test

import (
	"strings"
	"testing"

	"github.com/railscope/railscope/internal/config"
)

func TestExpect(t *testing.T) {
	for text, want := range map[string]float64{
		"":                            0,
		"expect:":                     0,
		"expect: {rate: 400Gb/s}":     50e9,
		"expect: {rate: 2.5Gb/s}":     2.5e9 / 8,
		"expect: {rate: 1Mb/s}":       125e3,
		"expect: {rate: 10000Gb/s}":   1.25e12,
		"expect: {rate: '800.0Gb/s'}": 100e9,
	} {
		for _, probing := range []bool{false, true} {
			in := text
			if probing {
				in += "\nprobe: {peers: [a]}"
			}
			c, err := config.Parse("f.yml", []byte(in))
			if err != nil || c.Expect.Rate != want || (c.Probe != nil) != probing || probing && c.Probe.ExpectedRate != want {
				t.Errorf("%q: %+v, %v", in, c, err)
			}
		}
	}
	for text, want := range map[string]string{
		"expect: {rate: 400}":       `f.yml:1: expect.rate: "400" is not a rate from 1Mb/s to 10000Gb/s; write a number with Gb/s or Mb/s, such as 400Gb/s`,
		"expect: {rate: 0Gb/s}":     `f.yml:1: expect.rate: "0Gb/s" is not a rate`,
		"expect: {rate: -1Gb/s}":    `f.yml:1: expect.rate: "-1Gb/s" is not a rate`,
		"expect: {rate: NaNGb/s}":   `f.yml:1: expect.rate: "NaNGb/s" is not a rate`,
		"expect: {rate: InfGb/s}":   `f.yml:1: expect.rate: "InfGb/s" is not a rate`,
		"expect: {rate: 50GB/s}":    `f.yml:1: expect.rate: "50GB/s" is not a rate`,
		"expect: {rate: [400Gb/s]}": `f.yml:1: expect.rate must be a rate, such as 400Gb/s, not a list`,
		"expect: {rat: 400Gb/s}":    `f.yml:1: unknown key "rat" in expect; did you mean "rate"?`,
		"expect: 400Gb/s":           `f.yml:1: expect must be keys with values, not`,
	} {
		if _, err := config.Parse("f.yml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
