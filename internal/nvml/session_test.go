package nvml_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/nvml/nvmltest"
)

const budget = time.Second

// driver returns the driver's version as a reader sees it.
func driver(g nvml.GPU) (string, error) {
	_, err := g.Processes(false)
	return g.Driver, err
}

func wantCode(t *testing.T, what string, err error, want nvml.Code) {
	t.Helper()
	if nvml.CodeOf(err) != want {
		t.Errorf("%s: %v, want code %d", what, err, want)
	}
}

// TestSessionShared: concurrent readers initialize NVML once.
func TestSessionShared(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		lib := &nvmltest.GPUs{Number: 3, OpenTakes: budget / 2}
		session := nvml.NewSession(lib)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				roster, gpus, err := nvml.NewReader(session, driver).Read(budget)
				if err != nil || roster.Count != 3 || len(gpus) != 3 || gpus[2].Value != "1.0" || gpus[2].Index != 2 {
					t.Errorf("%+v %+v %v", roster, gpus, err)
				}
			})
		}
		wg.Wait()
		if lib.Opened != 1 {
			t.Errorf("opened %d times", lib.Opened)
		}
	})
}

// TestSessionReopens: NVML is initialized again if it requires that, or every GPU does, at most once a minute.
func TestSessionReopens(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		lib := &nvmltest.GPUs{Number: 2}
		lost := map[int]bool{}
		r := nvml.NewReader(nvml.NewSession(lib), func(g nvml.GPU) (string, error) {
			if lost[g.Index] {
				return "", &nvml.Error{Call: "x", Code: nvml.CodeUninitialized}
			}
			return g.Driver, nil
		})
		read := func(what string, opened int, code nvml.Code, second string) {
			t.Helper()
			_, gpus, err := r.Read(budget)
			wantCode(t, what, err, code)
			if lib.Opened != opened || err == nil && gpus[1].Value != second {
				t.Errorf("%s: opened %d times, %+v", what, lib.Opened, gpus)
			}
		}
		read("at first", 1, 0, "1.0")
		lib.CountErr = &nvml.Error{Call: "x", Code: nvml.CodeDriverNotLoaded}
		read("NVML is lost", 1, nvml.CodeDriverNotLoaded, "")
		lib.CountErr = nil
		time.Sleep(nvml.RetryInterval - 1)
		read("too early", 1, nvml.CodeDriverNotLoaded, "")
		time.Sleep(1 * time.Nanosecond)
		read("after a minute", 2, 0, "2.0")
		lost[0] = true
		read("one GPU is lost", 2, 0, "2.0")
		time.Sleep(nvml.RetryInterval)
		read("it alone", 2, 0, "2.0")
		lost[1] = true
		read("all are", 2, 0, "")
		clear(lost)
		read("and are back", 3, 0, "3.0")
		lib.OpenErr = &nvml.Error{Call: "x", Code: nvml.CodeVersionMismatch}
		lib.CountErr = &nvml.Error{Call: "x", Code: nvml.CodeUninitialized}
		time.Sleep(nvml.RetryInterval)
		read("an upgrade begins", 3, nvml.CodeUninitialized, "")
		read("half of it", 3, nvml.CodeVersionMismatch, "")
		lib.OpenErr, lib.CountErr = nil, nil
		time.Sleep(nvml.RetryInterval)
		read("it is done", 4, 0, "4.0")
		if lib.Closed != 3 {
			t.Errorf("closed %d times", lib.Closed)
		}
	})
}

// TestSessionRelease: NVML is shut down at once, stays so, and is initialized again without delay.
func TestSessionRelease(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		lib := &nvmltest.GPUs{}
		session := nvml.NewSession(lib)
		r := nvml.NewReader(session, driver)
		read := func(what string, opened int, code nvml.Code) {
			t.Helper()
			_, _, err := r.Read(budget)
			wantCode(t, what, err, code)
			if lib.Opened != opened {
				t.Errorf("%s: opened %d times", what, lib.Opened)
			}
		}
		if err := session.Release(time.Minute); err != nil {
			t.Error(err)
		}
		read("before the first read", 0, nvml.CodeReleased)
		time.Sleep(time.Minute)
		read("at first", 1, 0)
		for range 3 {
			if err := session.Release(10 * time.Second); err != nil || lib.Closed != 1 {
				t.Errorf("closed %d times, %v", lib.Closed, err)
			}
		}
		if err := session.Release(time.Second); err != nil { // a later, shorter release does not shorten an earlier one
			t.Error(err)
		}
		time.Sleep(10*time.Second - 1)
		read("released", 1, nvml.CodeReleased)
		time.Sleep(1 * time.Nanosecond)
		read("no longer", 2, 0)
		lib.OpenErr = &nvml.Error{Call: "x", Code: nvml.CodeVersionMismatch}
		_ = session.Release(time.Second)
		time.Sleep(time.Second)
		read("too early", 2, nvml.CodeVersionMismatch)
		lib.OpenErr = nil
		_ = session.Release(time.Second)
		time.Sleep(time.Second)
		read("an attempt that failed does not count", 3, 0)
	})
}

// TestSessionHangs: a call that hangs affects only its GPU and is not repeated by another reader. It delays
// initialization and shutdown only briefly; both happen after it returns.
func TestSessionHangs(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		lib := &nvmltest.GPUs{Number: 2, Hang: make(chan struct{})}
		session := nvml.NewSession(lib)
		entered := 0
		hangs := func(g nvml.GPU) (string, error) {
			if g.Index == 0 {
				return g.Driver, nil
			}
			entered++
			return driver(g)
		}
		a, b := nvml.NewReader(session, hangs), nvml.NewReader(session, hangs)
		for _, r := range []*nvml.Reader[string]{a, b, a, b} {
			_, gpus, err := r.Read(budget)
			if err != nil || gpus[0].Err != nil || gpus[0].Value != "1.0" {
				t.Errorf("%+v, %v", gpus, err)
			}
			wantCode(t, "GPU 1", gpus[1].Err, nvml.CodeNoAnswer)
		}
		if entered != 1 {
			t.Errorf("%d calls are in the GPU that hangs", entered)
		}
		start := time.Now()
		wantCode(t, "release", session.Release(time.Minute), nvml.CodeNoAnswer)
		if took := time.Since(start); took > budget/2 {
			t.Errorf("release took %v", took)
		}
		_, _, err := a.Read(budget)
		wantCode(t, "while it is to be released", err, nvml.CodeReleased)
		if lib.Closed != 0 {
			t.Error("closed under a call")
		}
		close(lib.Hang)
		synctest.Wait()
		_, _, err = a.Read(budget)
		wantCode(t, "when it has returned", err, nvml.CodeReleased)
		if lib.Closed != 1 {
			t.Errorf("closed %d times", lib.Closed)
		}
		time.Sleep(time.Minute)
		if _, gpus, err := a.Read(budget); err != nil || gpus[1].Value != "2.0" {
			t.Errorf("%+v, %v", gpus, err)
		}
	})
}

// TestSessionInitHangs: while NVML itself hangs, every read ends in time with a reason. The initialization is used
// when it ends.
func TestSessionInitHangs(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		lib := &nvmltest.GPUs{OpenTakes: 10 * budget}
		session := nvml.NewSession(lib)
		r := nvml.NewReader(session, driver)
		for range 3 {
			_, _, err := r.Read(budget)
			wantCode(t, "read", err, nvml.CodeNoAnswer)
		}
		wantCode(t, "release", session.Release(time.Millisecond), nvml.CodeNoAnswer)
		time.Sleep(10 * budget)
		synctest.Wait()
		if lib.Closed != 1 {
			t.Errorf("closed %d times: what was to be released when it returned was not", lib.Closed)
		}
		lib.OpenTakes = 0
		if _, _, err := r.Read(budget); err != nil {
			t.Error(err)
		}
	})
}

// TestSessionPanics: a panic of the binding affects one GPU.
func TestSessionPanics(t *testing.T) {
	r := nvml.NewReader(nvml.NewSession(&nvmltest.GPUs{Number: 2}), func(g nvml.GPU) (string, error) {
		if g.Index == 1 {
			panic("index out of range")
		}
		return g.Driver, nil
	})
	for range 2 {
		_, gpus, err := r.Read(budget)
		if err != nil || gpus[0].Err != nil {
			t.Error(gpus, err)
		}
		wantCode(t, "GPU 1", gpus[1].Err, nvml.CodePanic)
		if e, _ := errors.AsType[*nvml.Error](gpus[1].Err); e.Reason() != nvml.ReasonPanic {
			t.Error(e.Reason())
		}
	}
}
