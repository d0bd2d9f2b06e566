package http

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/exporter-toolkit/web"
)

// TestListen: all forms of addresses are accepted; if one cannot be opened, none stays open.
func TestListen(t *testing.T) {
	for _, tc := range []struct {
		name      string
		addresses []string
		systemd   bool
		says      string // part of the error; empty: no error
	}{
		{"two addresses", []string{"127.0.0.1:0", "[::1]:0"}, false, ""},
		{"one that is wrong", []string{"127.0.0.1:0", "nonsense"}, false, "missing port"},
		{"a port of vsock that is no number", []string{"vsock://:web"}, false, "port"},
		{"no socket of systemd", nil, true, "no sockets from systemd"},
	} {
		off := tc.systemd
		list, err := listen(&web.FlagConfig{WebListenAddresses: &tc.addresses, WebSystemdSocket: &off},
			slog.New(slog.DiscardHandler))
		for _, l := range list {
			l.Close()
		}
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			if tc.says == "" && noIPv6() {
				continue
			}
			t.Errorf("%s: %d listeners, %v, want %q", tc.name, len(list), err, tc.says)
		}
	}
}

// noIPv6 reports whether the machine has no IPv6 on the loopback interface.
func noIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	if err == nil {
		l.Close()
	}
	return err != nil
}
