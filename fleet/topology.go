package fleet

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
)

// Topology maps a node, with or without its cluster, and a rail to a leaf.
type Topology map[[2]string]string

// maxTopology bounds a topology, in lines.
const maxTopology = 1 << 20

// ReadTopology reads CSV lines of node, rail and leaf. With several clusters, a node is cluster/node. It skips a first
// line with these titles.
func ReadTopology(r io.Reader) (Topology, error) {
	t := Topology{}
	in := csv.NewReader(r)
	in.FieldsPerRecord, in.TrimLeadingSpace, in.Comment, in.ReuseRecord = 3, true, '#', true
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("want lines of node,rail,leaf: %w", err)
		}
		line, _ := in.FieldPos(0)
		switch node, rail, name := record[0], record[1], record[2]; {
		case line == 1 && node == "node":
		case node == "" || rail == "" || name == "":
			return nil, fmt.Errorf("line %d: node, rail and leaf must all be there", line)
		case len(t) == maxTopology:
			return nil, fmt.Errorf("more than %d lines", maxTopology)
		default:
			t[[2]string{node, rail}] = name
		}
	}
}

// Of returns the leaf of a rail; empty if unknown.
func (t Topology) Of(r Rail) string {
	if name := t[[2]string{r.String(), r.Rail}]; name != "" {
		return name
	}
	return t[[2]string{r.Name, r.Rail}]
}
