package http

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/mdlayher/vsock"
	"github.com/prometheus/exporter-toolkit/web"
)

// vsockScheme is before the port of an address of a virtual machine's host.
const vsockScheme = "vsock://"

// listen opens the addresses of the flags that all exporters share, or takes the sockets that systemd has opened.
// exporter-toolkit does the same, but keeps the listeners, whose connections are to be limited.
func listen(flags *web.FlagConfig, logger *slog.Logger) ([]net.Listener, error) {
	if flags.WebSystemdSocket != nil && *flags.WebSystemdSocket {
		logger.Info("Listening on the sockets of systemd")
		list, err := activation.Listeners()
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, errors.New("no sockets from systemd: start railscope by its socket unit or without " +
				"--web.systemd-socket")
		}
		return list, nil
	}
	var list []net.Listener
	for _, address := range *flags.WebListenAddresses {
		l, err := listenOn(address)
		if err != nil {
			for _, l := range list {
				_ = l.Close() // not served yet
			}
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

func listenOn(address string) (net.Listener, error) {
	if !strings.HasPrefix(address, vsockScheme) {
		return net.Listen("tcp", address)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(u.Port(), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%s: invalid port: %w", address, err)
	}
	return vsock.Listen(uint32(port), nil)
}
