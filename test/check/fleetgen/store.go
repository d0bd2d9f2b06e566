package fleetgen

import (
	"context"
	"fmt"

	"github.com/prometheus/prometheus/storage"
)

// Store writes all samples to a storage, and commits after every node: what is not committed takes memory.
func (f *Fleet) Store(ctx context.Context, to storage.Appendable) error {
	for n := 1; n <= f.Nodes; n++ {
		app := to.Appender(ctx)
		for _, s := range f.Of(n) {
			var ref storage.SeriesRef
			for at, v := range s.Samples() {
				var err error
				if ref, err = app.Append(ref, s.Labels, at, v); err != nil {
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
