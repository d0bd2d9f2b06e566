package steps

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/railscope/railscope/bench/suite"
)

// Read reads the steps of a suite from the file that `bench --suite` writes. An unfinished suite has fewer steps than
// were planned, or fewer rounds of the last one.
func Read(r io.Reader) (peer string, list []Done, err error) {
	data, err := io.ReadAll(io.LimitReader(r, suite.MaxFile+1))
	switch {
	case err != nil:
		return "", nil, err
	case len(data) > suite.MaxFile:
		return "", nil, fmt.Errorf("larger than %d MiB: not a suite", suite.MaxFile>>20)
	}
	var file struct {
		Version int    `json:"version"`
		Peer    string `json:"peer"`
		Steps   []Done `json:"steps"`
	}
	err = json.Unmarshal(data, &file)
	switch {
	case err != nil:
		return "", nil, fmt.Errorf("not a suite: %w", err)
	case file.Version != suite.Version:
		return "", nil, fmt.Errorf("form %d of a suite, and this version reads form %d", file.Version, suite.Version)
	case len(file.Steps) == 0 || file.Steps[0].Name != First || len(file.Steps[0].Rounds) == 0:
		return "", nil, fmt.Errorf("no suite: it was not written by bench --suite, or has no round")
	}
	return file.Peer, file.Steps, nil
}
