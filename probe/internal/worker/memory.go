package worker

import (
	"errors"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/memory"
	"github.com/railscope/railscope/probe/internal/pattern"
	"github.com/railscope/railscope/probe/internal/transfer"
	"github.com/railscope/railscope/probe/internal/verbs"
)

// Libraries has the paths of the libraries of GPUs; empty for the linker's.
type Libraries = memory.Libraries

// sessionMemory holds all memory of a session.
type sessionMemory struct {
	all     []memory.Memory
	rails   map[string]memory.Memory // memory registered on each rail: rings into which bytes move, or a source
	failed  map[string]error         // reason why a rail has no memory
	sources []memory.Memory          // all sources, one on each NUMA node or GPU
	pattern []byte                   // content of the sources, on this host, to compare rings with
	seed    *uint64                  // seed of the pattern; nil before it is filled
}

// place is the location of a source. Rails of one place share the source.
type place struct {
	node int
	gpu  string
	rail string // only rail of this source, if each rail copies on its own
}

// open maps the memory of a session, for each rail on the NUMA node of its device, or on its GPU. A rail whose GPU
// cannot provide the memory fails alone.
func (s *sessionMemory) open(args OpenArgs, libraries Libraries) (err error) {
	hugePages(true)
	defer hugePages(false)
	*s = sessionMemory{rails: map[string]memory.Memory{}, failed: map[string]error{}}
	sources := map[place]memory.Memory{}
	for _, r := range args.Rails {
		spec := memory.Spec{Kind: args.kind(), Size: transfer.SourceLen, Stage: args.Buffer, GPU: r.GPU,
			Libraries: libraries}
		if spec.Kind == memory.CUDAStaged && r.Op == Read {
			s.failed[r.Name] = failure.New("", failure.Other, "%s memory is measured by writes", spec.Kind)
			continue
		}
		if args.arrivesAt(r) {
			spec.Size = args.Buffer
			s.rails[r.Name], s.failed[r.Name] = s.add(r.NUMANode, spec)
			continue
		}
		at := place{node: r.NUMANode}
		if spec.Kind != memory.Host {
			at = place{node: -1, gpu: r.GPU}
		}
		if spec.Kind == memory.CUDAStaged {
			at.rail = r.Name
		}
		if sources[at] == nil {
			m, err := s.add(r.NUMANode, spec)
			s.failed[r.Name] = err
			if err != nil {
				continue
			}
			sources[at], s.sources = m, append(s.sources, m)
		}
		s.rails[r.Name] = sources[at]
	}
	for _, err := range s.failed {
		if err != nil && args.kind() == memory.Host { // the host is out of memory
			return errors.Join(err, s.close())
		}
	}
	filled := len(s.sources) > 0
	if err := s.mapPattern(); err != nil {
		return errors.Join(err, s.close())
	}
	if filled {
		err = s.fill(args.Seed)
	}
	if err != nil {
		return errors.Join(err, s.close())
	}
	return nil
}

// answers reports whether this end of a rail is the target.
func (a OpenArgs) answers(r RailArg) bool { return a.Target || r.Answers }

// arrivesAt reports whether bytes arrive at this end of a rail, so that its memory is rings.
func (a OpenArgs) arrivesAt(r RailArg) bool { return a.answers(r) != (r.Op == Read) }

// kind returns the kind of the session's memory.
func (a OpenArgs) kind() memory.Kind {
	if a.Memory == "" || a.Transport != RDMA {
		return memory.Host
	}
	return memory.Kind(a.Memory)
}

// add maps memory; memory of this host is on the given NUMA node.
func (s *sessionMemory) add(node int, spec memory.Spec) (m memory.Memory, err error) {
	onNode(nodesDir, node, func() { m, err = memory.Map(spec) })
	if err != nil {
		return nil, err
	}
	s.all = append(s.all, m)
	return m, nil
}

// mapPattern uses a source on this host as the pattern, or maps one.
func (s *sessionMemory) mapPattern() (err error) {
	for _, m := range s.sources {
		if m.Kind() == memory.Host {
			s.pattern, err = m.Read(0, transfer.SourceLen)
			return err
		}
	}
	m, err := s.add(-1, memory.Spec{Kind: memory.Host, Size: transfer.SourceLen})
	if err == nil {
		s.pattern, err = m.Read(0, transfer.SourceLen)
	}
	return err
}

// fill fills the pattern and the sources, unless they already have this seed.
func (s *sessionMemory) fill(seed uint64) error {
	if s.seed != nil && *s.seed == seed {
		return nil
	}
	pattern.Fill(s.pattern, seed, 0)
	for _, m := range s.sources {
		if err := m.Write(0, s.pattern); err != nil {
			return err
		}
	}
	s.seed = &seed
	return nil
}

// size returns the bytes of a rail's memory; 0 if it has none.
func (s *sessionMemory) size(rail string) int64 {
	if m := s.rails[rail]; m != nil {
		return m.Area().Size
	}
	return 0
}

// area returns a rail's memory as its device sees it, or the reason why there is none.
func (s *sessionMemory) area(rail string) (verbs.Area, error) {
	if err := s.failed[rail]; err != nil {
		return verbs.Area{}, err
	}
	return s.rails[rail].Area(), nil
}

// bytes returns the memory of all rails, which must be on this host.
func (s *sessionMemory) bytes() map[string][]byte {
	list := map[string][]byte{}
	for name, m := range s.rails {
		list[name], _ = m.Read(0, int(m.Area().Size)) // the whole area is readable
	}
	return list
}

// close frees everything.
func (s *sessionMemory) close() error {
	var errs []error
	for _, m := range s.all {
		errs = append(errs, m.Close())
	}
	*s = sessionMemory{}
	return errors.Join(errs...)
}
