package serve

import (
	"log/slog"
	"time"

	"github.com/railscope/railscope/internal/maintenance"
	"github.com/railscope/railscope/internal/nvml"
)

// NVML stays released this long after SIGHUP, and after a check that found the maintenance file. The latter is
// longer than a check that hangs.
const (
	hangupRelease      = time.Minute
	maintenanceRelease = 5 * time.Second
)

// maintenanceWatch watches the maintenance file, and releases NVML while it exists.
type maintenanceWatch struct {
	*maintenance.Watch
	nvml   *nvml.Session
	logger *slog.Logger
	failed bool // the last check failed
}

// newMaintenanceWatch returns the watch of a file, and of the file with the pod's annotation; empty: none.
func newMaintenanceWatch(file, annotation string, gpus *nvml.Session, logger *slog.Logger) *maintenanceWatch {
	w := &maintenanceWatch{nvml: gpus, logger: logger}
	w.Watch = maintenance.New(file, annotation, w.observe)
	return w
}

func (w *maintenanceWatch) observe(s maintenance.State) {
	switch {
	case s.Changed && s.Active:
		w.logger.Info("Maintenance started, no round starts and NVML is released")
	case s.Changed:
		w.logger.Info("Maintenance ended")
	}
	var released error
	if s.Active {
		released = w.nvml.Release(maintenanceRelease)
	}
	failed := s.Err != nil || released != nil
	switch {
	case !failed || w.failed:
	case s.Err != nil:
		w.logger.Warn("Maintenance check failed, state unchanged (logged once)", "err", s.Err)
	default:
		w.logger.Warn("NVML release failed, retried at every check (logged once)", "err", released)
	}
	w.failed = failed
}
