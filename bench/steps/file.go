package steps

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/railscope/railscope/bench/suite"
)

// File is what is read of the file that `bench --suite` writes. An unfinished suite has fewer steps than were planned,
// or fewer rounds of the last one.
type File struct {
	Version int                `json:"version"`
	Peer    string             `json:"peer"`
	Steps   []Done             `json:"steps"`
	Storage []suite.Checkpoint `json:"storage"`
}

// Read reads the file of a suite.
func Read(r io.Reader) (file File, err error) {
	data, err := io.ReadAll(io.LimitReader(r, suite.MaxFile+1))
	switch {
	case err != nil:
		return file, err
	case len(data) > suite.MaxFile:
		return file, fmt.Errorf("larger than %d MiB: not a suite", suite.MaxFile>>20)
	}
	err = json.Unmarshal(data, &file)
	switch {
	case err != nil:
		return file, fmt.Errorf("not a suite: %w", err)
	case file.Version != suite.Version:
		return file, fmt.Errorf("form %d of a suite, and this version reads form %d", file.Version, suite.Version)
	case len(file.Steps) == 0 || file.Steps[0].Name != First || len(file.Steps[0].Rounds) == 0:
		return file, fmt.Errorf("no suite: it was not written by bench --suite, or has no round")
	}
	return file, nil
}
