package hostport

import "testing"

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"spark-02": "spark-02:10092", "spark-02:1": "spark-02:1", "10.0.0.1": "10.0.0.1:10092",
		"[FD00::2]:5": "[fd00::2]:5", "[fe80::1%eth0]:5": "[fe80::1%eth0]:5", "Host.": "Host.:10092",
		"": "", ":5": "", "a:0": "", "a:01": "", "a:65536": "", "fd00::2": "", "a..b": "", "-a": "", "a b": "",
		"[fe80::1%;]:5": "",
	} {
		if got, ok := Parse(in, "10092"); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, ok, want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		"Host.Example.:5": "host.example:5", "[::ffff:10.0.0.1]:5": "10.0.0.1:5", "[FD00::2]:5": "[fd00::2]:5",
	} {
		if got := Canonical(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
