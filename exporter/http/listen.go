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

// listen opens the addresses of the flags that all exporters share, or takes the sockets of systemd. The listeners of
// exporter-toolkit, which does the same, cannot be limited.
func listen(flags *web.FlagConfig, logger *slog.Logger) ([]net.Listener, error) {
	if flags.WebSystemdSocket != nil && *flags.WebSystemdSocket {
		logger.Info("Listening on the sockets of systemd")
		list, err := activation.Listeners()
		if err == nil && len(list) == 0 {
			err = errors.New("no sockets from systemd: start railscope by its socket unit or without --web.systemd-socket")
		}
		return list, err
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

// listenOn opens a TCP address, or vsock://:PORT for the host of a virtual machine.
func listenOn(address string) (net.Listener, error) {
	if !strings.HasPrefix(address, "vsock://") {
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
