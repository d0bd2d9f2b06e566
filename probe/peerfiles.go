package probe

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/railscope/railscope/internal/hostport"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/secret"
)

// Limits of files that list nodes.
const (
	maxPeerFile  = 8 << 20 // bytes
	maxPeerFiles = 100     // that match one pattern
)

// peerFiles are the files that match one pattern, in the format of Prometheus' file_sd. Not safe for concurrent use.
type peerFiles struct {
	pattern string
	lanes   lane.Group[matches]
	files   map[string]*peerFile // by path
}

// peerFile is the last good content of a file.
type peerFile struct {
	sum   [sha256.Size]byte
	nodes []string // host:port
}

type matches struct {
	data map[string]content // by path
	err  error
}

func newPeerFiles(pattern string) *peerFiles {
	return &peerFiles{pattern: pattern, files: map[string]*peerFile{}}
}

// lookup reads the files and returns the nodes that they list. A file that cannot be read or is invalid keeps its last
// good content. Files that have gone no longer count, unless none is left.
func (p *peerFiles) lookup(context.Context) ([]string, error) {
	res := p.lanes.Run(lookupTime, []string{p.pattern}, readMatches)[0]
	read, err := res.Value, res.Err
	switch {
	case res.State == lane.Died:
	case err != nil: // without the time that it takes: it is logged once
		err = fmt.Errorf("%s: read hangs: is its file system available? (%w)", p.pattern, context.DeadlineExceeded)
	case read.err != nil:
		err = read.err
	case len(read.data) == 0:
		err = fmt.Errorf("%w: no file matches %s", fs.ErrNotExist, p.pattern)
	default:
		err = p.update(read.data)
	}
	var list []string
	for _, f := range p.files {
		list = append(list, f.nodes...)
	}
	slices.Sort(list)
	return slices.Compact(list), err
}

func readMatches(pattern string) (m matches) {
	paths, err := filepath.Glob(pattern)
	if err == nil && len(paths) > maxPeerFiles {
		err = fmt.Errorf("%d files match %s: the limit is %d", len(paths), pattern, maxPeerFiles)
	}
	if err != nil {
		return matches{err: err}
	}
	m.data = map[string]content{}
	for _, path := range paths {
		data, err := secret.ReadFile(path, maxPeerFile)
		m.data[path] = content{data, err}
	}
	return m
}

func (p *peerFiles) update(read map[string]content) error {
	var first error
	before := p.files
	p.files = map[string]*peerFile{}
	for _, path := range slices.Sorted(maps.Keys(read)) {
		c := read[path]
		f, sum := before[path], sha256.Sum256(c.data)
		if c.err == nil && (f == nil || f.sum != sum) {
			var nodes []string
			if nodes, c.err = parsePeerFile(filepath.Ext(path), c.data); c.err == nil {
				f = &peerFile{sum, nodes}
			} else {
				c.err = fmt.Errorf("%s: %w", path, c.err)
			}
		}
		if f != nil {
			p.files[path] = f
		}
		first = cmp.Or(first, c.err)
	}
	return first
}

// targetGroup is one item of a file. Its labels are for Prometheus.
type targetGroup struct {
	Targets []string          `json:"targets" yaml:"targets"`
	Labels  map[string]string `json:"labels" yaml:"labels"`
}

// parsePeerFile returns the targets of a file_sd file, as host:port in one spelling.
func parsePeerFile(ext string, data []byte) ([]string, error) {
	var groups []targetGroup
	var err error
	if strings.EqualFold(ext, ".json") {
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if err = dec.Decode(&groups); err == nil {
			if _, rest := dec.Token(); !errors.Is(rest, io.EOF) {
				err = errors.New("text after the list")
			}
		}
	} else {
		dec := yaml.NewDecoder(bytes.NewReader(data))
		dec.KnownFields(true)
		err = dec.Decode(&groups)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("empty: write [] for no targets")
	}
	if err != nil {
		return nil, fmt.Errorf("not a list of {targets: [host:port, …]}: %w", err)
	}
	var nodes []string
	for _, g := range groups {
		for _, written := range g.Targets {
			node, ok := hostport.Parse(written, DefaultPort)
			if !ok {
				return nil, fmt.Errorf("target %.80q must be host or host:port, such as spark-02:%s", written, DefaultPort)
			}
			nodes = append(nodes, hostport.Canonical(node))
		}
	}
	if slices.Sort(nodes); len(nodes) > maxNodes {
		return nil, fmt.Errorf("%d targets: the limit is %d", len(nodes), maxNodes)
	}
	return slices.Compact(nodes), nil
}
