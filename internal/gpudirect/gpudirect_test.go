package gpudirect

import "testing"

const (
	open570 = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  " +
		"(dvs-builder@U22-A23-20-2)\nGCC version:  gcc version 12.3.0\n"
	proprietary550 = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
	open510        = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  510.47.03  Release Build  (x)\n"
)

func TestParseDriver(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Driver // zero: an error
	}{
		{open570, Driver{Open: true, Major: 570, Version: "570.124.06"}},
		{proprietary550, Driver{Major: 550, Version: "550.54.15"}},
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.  x\n", Driver{}},
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  -5.1\n", Driver{}},
		{"GCC version: Kernel Module 12.3\n", Driver{}},
		{"GCC version: 12.3\nNVRM version: Kernel Module 550.1\n", Driver{}},
		{"", Driver{}},
	} {
		got, err := ParseDriver(tt.text)
		if got != tt.want || (err != nil) != (tt.want == Driver{}) {
			t.Errorf("%q: %+v, %v; want %+v", tt.text, got, err, tt.want)
		}
	}
}

func TestParseKernel(t *testing.T) {
	for text, want := range map[string]Kernel{
		"6.8.0-55-generic\n": {6, 8, false}, "5.12-rc1": {5, 12, false}, "4.18.0-553.el8_10.x86_64": {4, 18, true},
		"5.14.0-503.11.1.el9_5.x86_64\n": {5, 14, true}, "6.11+": {6, 11, false}, "6.8.0-el1te": {6, 8, false},
		"": {}, "6": {}, "-1.x": {}, "6.x": {}, "99999.1": {},
	} {
		got, err := ParseKernel(text)
		if got != want || (err != nil) != (want == Kernel{}) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestPossible(t *testing.T) {
	k := func(major, minor int) *Kernel { return &Kernel{Major: major, Minor: minor} }
	d := func(text string) *Driver {
		d, err := ParseDriver(text)
		if err != nil {
			t.Fatal(err)
		}
		return &d
	}
	type answer struct {
		possible bool
		why      string
		ok       bool
	}
	for _, tt := range []struct {
		name   string
		kernel *Kernel
		driver *Driver
		want   answer
	}{
		{"new enough", k(5, 12), d(open570), answer{true, DMABuf, true}},
		{"old kernel", k(5, 11), d(open570), answer{false, OldKernel, true}},
		{"very old kernel", k(4, 18), nil, answer{false, OldKernel, true}},
		{"an early version with later drivers", &Kernel{4, 18, true}, d(open570), answer{false, OldKernel, true}},
		{"a later version with later drivers", &Kernel{5, 14, true}, d(open570), answer{true, DMABuf, true}},
		{"old driver", k(6, 8), d(open510), answer{false, OldDriver, true}},
		{"proprietary, kernel unknown", nil, d(proprietary550), answer{false, Proprietary, true}},
		{"kernel unknown", nil, d(open570), answer{true, DMABuf, false}},
		{"driver unknown", k(6, 8), nil, answer{true, DMABuf, false}},
	} {
		var got answer
		got.possible, got.why, got.ok = Possible(tt.kernel, tt.driver)
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestModel(t *testing.T) {
	for text, want := range map[string]string{
		"Model: \t\t NVIDIA H200\nIRQ:   \t\t 312\n": "NVIDIA H200", "IRQ: 1\nModel: NVIDIA GB10\n": "NVIDIA GB10",
		"Model:\n": "", "N/A": "", "": "",
	} {
		if got := Model(text); got != want || Unsupported(got) != (want == "NVIDIA GB10") {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzParseDriver(f *testing.F) {
	f.Add(open570)
	f.Add(proprietary550)
	f.Add("NVRM version: Kernel Module 99999999999.1")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := ParseDriver(text); err == nil && (d.Major < 0 || d.Major > 1<<
			16 || d.Version == "") || err != nil && d != (Driver{}) {
			t.Errorf("%+v, %v", d, err)
		}
	})
}
