// Package systemd reports the state of the service to the service manager (sd_notify(3)). It does nothing outside a
// unit of Type=notify.
package systemd

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Ready reports that the service is up, or that a reload has ended.
func Ready() { notify(daemon.SdNotifyReady) }

// Stopping reports that the service is shutting down.
func Stopping() { notify(daemon.SdNotifyStopping) }

// Reloading reports a reload of the configuration. A unit of Type=notify-reload needs the time, on CLOCK_MONOTONIC.
func Reloading() {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		notify(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1e3))
	}
}

// Watchdog notifies the service manager twice per WatchdogSec, each time after alive has returned. A stuck service
// therefore stops notifying and is restarted. It ends when stop is called.
func Watchdog(alive func()) (stop func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval <= 0 {
		return func() {}
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for tick := time.Tick(interval / 2); ; {
			select {
			case <-tick:
				alive()
				notify(daemon.SdNotifyWatchdog)
			case <-ctx.Done():
				return
			}
		}
	}()
	return stop
}

// notify ignores errors: there is no other way to report.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }
