package fleetgen

import (
	"context"
	"fmt"

	"github.com/prometheus/prometheus/storage"
)

// Store writes all samples to a storage. It commits after every node, because uncommitted samples need memory.
func (f *Fleet) Store(ctx context.Context, to storage.Appendable) error {
	for n := 1; n <= f.Nodes; n++ {
		app := to.Appender(ctx)
		for _, s := range f.Of(n) {
			var ref storage.SeriesRef
			for at, v := range s.Samples() {
				var err error
				ref, err = app.Append(ref, s.Labels, at, v)
				if err != nil {
					_ = app.Rollback()
					return fmt.Errorf("%s: %w", s.Labels, err)
				}
			}
		}
		if err := app.Commit(); err != nil {
			return err
		}
	}
	return nil
}
