package config

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLoaderDoesNotHang: a token file that hangs is rejected in time. Later loads neither wait nor start another
// thread, and succeed once the file can be read.
func TestLoaderDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var reads atomic.Int32
		l := Loader{open: func(string, int) ([]byte, error) {
			reads.Add(1)
			<-hang
			return []byte("sesame"), nil
		}}
		load := func() error {
			_, err := l.parse("f.yml", []byte("probe: {peers: [a], token_file: /dead/nfs/token}"))
			return err
		}
		for i := range 10 {
			start := time.Now()
			err := load()
			if err == nil || !strings.Contains(err.Error(),
				"check that its file system is reachable") || i == 0 && time.Since(start) != fileTimeout || i > 0 &&
				time.Since(start) != 0 {
				t.Errorf("load %d: %v after %v", i, err, time.Since(start))
			}
		}
		if reads.Load() != 1 {
			t.Errorf("%d reads hang", reads.Load())
		}
		close(hang)
		synctest.Wait()
		if err := load(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute) // until no goroutine is idle in a lane
	})
}
