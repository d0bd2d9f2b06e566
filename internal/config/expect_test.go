package config_test

import (
	"strings"
	"testing"

	"github.com/railscope/railscope/internal/config"
)

func TestExpect(t *testing.T) {
	for text, want := range map[string]config.Rate{
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
			if err != nil || c.Expect.Rate != want || (c.Probe != nil) != probing {
				t.Errorf("%q: %+v, %v", in, c, err)
			}
		}
	}
	for text, want := range map[string]string{
		"expect: {rate: 400}": `f.yml:1: expect.rate must be a rate such as 400Gb/s or 100Mb/s, from 1Mb/s ` +
			`to 10000Gb/s, not "400"`,
		"expect: {rate: 0Gb/s}": `f.yml:1: expect.rate must be a rate such as 400Gb/s or 100Mb/s, from 1Mb/s ` +
			`to 10000Gb/s, not 0Mb/s`,
		"expect: {rate: -1Gb/s}": `f.yml:1: expect.rate must be a rate such as 400Gb/s or 100Mb/s, from 1Mb/s ` +
			`to 10000Gb/s, not -1Gb/s`,
		"expect: {rate: NaNGb/s}": `f.yml:1: expect.rate must be a rate such as 400Gb/s or 100Mb/s, from 1Mb/s ` +
			`to 10000Gb/s, not NaNGb/s`,
		"expect: {rate: InfGb/s}": `f.yml:1: expect.rate must be a rate such as 400Gb/s or 100Mb/s, from 1Mb/s ` +
			`to 10000Gb/s, not +InfGb/s`,
		"expect: {rate: 50GB/s}": `f.yml:1: expect.rate must be a rate such as 400Gb/s or 100Mb/s, from 1Mb/s ` +
			`to 10000Gb/s, not "50GB/s"`,
		"expect: {rate: [400Gb/s]}": `f.yml:1: expect.rate must be a rate such as 400Gb/s or 100Mb/s, from 1Mb/s ` +
			`to 10000Gb/s, not a list`,
		"expect: {mtu: 9000}":    `f.yml:1: expect.mtu must be a whole number, 256, 512, 1024, 2048 or 4096, not 9000`,
		"expect: {mtu: 300}":     `f.yml:1: expect.mtu must be a whole number, 256, 512, 1024, 2048 or 4096, not 300`,
		"expect: {rails: 0}":     `f.yml:1: expect.rails must be a whole number, from 1 to 128, not 0`,
		"expect: {gpus: 129}":    `f.yml:1: expect.gpus must be a whole number, from 1 to 128, not 129`,
		"expect: {gpus: all}":    `f.yml:1: expect.gpus must be a whole number, from 1 to 128, not "all"`,
		"expect: {rat: 400Gb/s}": `f.yml:1: unknown key "rat" in expect; did you mean "rate"?`,
		"expect: 400Gb/s":        `f.yml:1: expect must be keys with values, not`,
	} {
		if _, err := config.Parse("f.yml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestExpectNumbers: each key sets its field.
func TestExpectNumbers(t *testing.T) {
	c, err := config.Parse("f.yml", []byte("expect: {rails: 8, rate: 400Gb/s, mtu: 4096, gpus: 4}"))
	if want := (config.Expect{Rails: 8, Rate: 50e9, MTU: 4096, GPUs: 4}); err != nil || c.Expect != want {
		t.Errorf("%+v, %v", c.Expect, err)
	}
}
