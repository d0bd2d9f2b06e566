// Package systemd tells the service manager how the service is doing
// (sd_notify(3)). Outside of a unit of Type=notify every call does nothing.
package systemd

import (
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Ready says that the service is up, or that a reload is over.
func Ready() { notify(daemon.SdNotifyReady) }

// Stopping says that the service is shutting down.
func Stopping() { notify(daemon.SdNotifyStopping) }

// Reloading says that the configuration is being read again. A unit of
// Type=notify-reload also wants the time, on CLOCK_MONOTONIC.
func Reloading() {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		notify(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1e3))
	}
}

// Watchdog tells the service manager twice per WatchdogSec that the service is
// alive, each time after alive has returned: a service that is stuck falls
// silent and is restarted. It ends when stop is called.
func Watchdog(alive func()) (stop func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval <= 0 {
		return func() {}
	}
	ticker, done := time.NewTicker(interval/2), make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				alive()
				notify(daemon.SdNotifyWatchdog)
			case <-done:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
	}
}

// notify ignores failure: there is nobody else to tell.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }
