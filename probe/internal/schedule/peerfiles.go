package schedule

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
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/options"
)

// Limits of files that list nodes.
const (
	maxPeerFile  = 8 << 20  // bytes
	maxPeerBytes = 16 << 20 // bytes of all files that match one pattern
	maxPeerFiles = 100      // files that match one pattern
	// maxPeerItems is the largest number of separators in a file. A parsed item takes about 100 bytes, whatever it
	// is.
	maxPeerItems = 20 * MaxNodes
)

// PeerFiles are the files that match one pattern, in Prometheus' file_sd format. Not safe for concurrent use.
type PeerFiles struct {
	pattern string
	lanes   lane.Group[Matches]
	files   map[string]*peerFile // files by path
}

// peerFile is the last content of a file.
type peerFile struct {
	sum     [sha256.Size]byte
	nodes   []string // host:port from the last valid content
	refused error    // reason why the present content is invalid; nil: valid
}

// Matches are the files that match a pattern.
type Matches struct {
	Data map[string]auth.Content // content by path
	err  error
}

// NewPeerFiles returns the reader of the files that match an absolute pattern.
func NewPeerFiles(pattern string) *PeerFiles {
	return &PeerFiles{pattern: pattern, files: map[string]*peerFile{}}
}

// Lookup reads the files and returns the nodes that they list. A file that cannot be read or is invalid keeps its
// last valid content. Deleted files no longer count, unless none is left.
func (p *PeerFiles) Lookup(context.Context) ([]string, error) {
	res := p.lanes.Run(LookupTime, []string{p.pattern}, ReadMatches)[0]
	read, err := res.Value, res.Err
	switch {
	case res.State == lane.Died:
	case err != nil: // the deadline has no part in the text, so that the error is logged once
		err = fmt.Errorf("%s: read hangs: is its file system available? (%w)", p.pattern, context.DeadlineExceeded)
	case read.err != nil:
		err = read.err
	case len(read.Data) == 0:
		err = fmt.Errorf("%w: no file matches %s", fs.ErrNotExist, p.pattern)
	default:
		err = p.update(read.Data)
	}
	var list []string
	for _, f := range p.files {
		list = append(list, f.nodes...)
	}
	slices.Sort(list)
	return slices.Compact(list), err
}

// ReadMatches reads all files that match a pattern.
func ReadMatches(pattern string) (m Matches) {
	paths, err := filepath.Glob(pattern)
	if err == nil && len(paths) > maxPeerFiles {
		err = fmt.Errorf("%d files match %s: the limit is %d", len(paths), pattern, maxPeerFiles)
	}
	if err != nil {
		return Matches{err: err}
	}
	m.Data = map[string]auth.Content{}
	left := maxPeerBytes
	for _, path := range paths {
		if left <= 0 {
			m.Data[path] = auth.Content{Err: fmt.Errorf("%s: not read: the files that match %s have more than %d bytes",
				path, pattern, maxPeerBytes)}
			continue
		}
		data, err := secret.ReadFile(path, maxPeerFile)
		left -= len(data)
		m.Data[path] = auth.Content{Data: data, Err: err}
	}
	return m
}

func (p *PeerFiles) update(read map[string]auth.Content) error {
	var first error
	before := p.files
	p.files = map[string]*peerFile{}
	for _, path := range slices.Sorted(maps.Keys(read)) {
		c := read[path]
		f, sum := before[path], sha256.Sum256(c.Data)
		if c.Err == nil && (f == nil || f.sum != sum) {
			nodes, err := ParsePeerFile(filepath.Ext(path), c.Data)
			if err != nil {
				err = fmt.Errorf("%s: %w", path, err)
				if f != nil {
					nodes = f.nodes
				}
			}
			f = &peerFile{sum, nodes, err}
		}
		if c.Err == nil {
			c.Err = f.refused
		}
		if f != nil {
			p.files[path] = f
		}
		first = cmp.Or(first, c.Err)
	}
	return first
}

// targetGroup is one item of a file. Its labels are for Prometheus.
type targetGroup struct {
	Targets []string          `json:"targets" yaml:"targets"`
	Labels  map[string]string `json:"labels" yaml:"labels"`
}

// ParsePeerFile returns the targets of a file_sd file as normalized host:port.
func ParsePeerFile(ext string, data []byte) ([]string, error) {
	var groups []targetGroup
	var err error
	items := 0
	for _, separator := range []string{",", "\n", "["} {
		items += bytes.Count(data, []byte(separator))
	}
	if items > maxPeerItems {
		return nil, fmt.Errorf("more than %d lines and items: the limit is %d targets", maxPeerItems, MaxNodes)
	}
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
			node, ok := hostport.Parse(written, options.DefaultPort)
			if !ok {
				return nil, fmt.Errorf("target %.80q must be host or host:port, such as spark-02:%s", written,
					options.DefaultPort)
			}
			nodes = append(nodes, hostport.Canonical(node))
		}
	}
	slices.Sort(nodes)
	if len(nodes) > MaxNodes {
		return nil, fmt.Errorf("%d targets: the limit is %d", len(nodes), MaxNodes)
	}
	return slices.Compact(nodes), nil
}
