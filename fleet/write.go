package fleet

import (
	_ "embed" // for page.tmpl
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/text"
)

// Shown is a report in the form that is written.
type Shown struct {
	Time   time.Time `json:"time"` // time of the rounds
	Report           // blames
	Failed []string  `json:"failed"` // queries that Prometheus did not answer, and why
	// LeftOut lists the pairs whose last round is older than MaxAge, or of unknown age. They are not judged.
	LeftOut []Old       `json:"left_out"`
	Rails   []RailProof `json:"rails"`  // rails whose ports are up
	Errors  []Counted   `json:"errors"` // Errors are those of the last 30 minutes, which blame none of these nodes.
	// Miswired lists the rails that are plugged into another switch than those of equal nodes. They are not faults.
	Miswired []Miswired    `json:"miswired"`
	MaxAge   time.Duration `json:"-"`
	state    State
}

// NewShown judges a state, and adds the time and failures of its answers.
func NewShown(s State, a Answers) Shown {
	return Shown{Time: a.Time, Report: Judge(s), Failed: append([]string{}, a.Failed...), LeftOut: []Old{},
		Rails: append([]RailProof{}, s.Proofs...), Errors: append([]Counted{}, s.Errors...),
		Miswired: append([]Miswired{}, miswired(s.Leaves)...), state: s}
}

// NewRecent judges the answers that are at most maxAge old at the time now; 0 allows any age.
func NewRecent(a Answers, leaves Topology, now time.Time, maxAge time.Duration) Shown {
	recent, old := a.Recent(now, maxAge)
	s := NewShown(recent.State(leaves), recent)
	s.LeftOut, s.MaxAge = append(s.LeftOut, old...), maxAge
	return s
}

// leftOut returns sentences about pairs that are not judged, one per starting node.
func (s Shown) leftOut() (list []string) {
	for i := 0; i < len(s.LeftOut); {
		first, n := s.LeftOut[i], 0
		for ; i < len(s.LeftOut) && s.LeftOut[i].Node == first.Node; i++ {
			n++
		}
		list = append(list, fmt.Sprintf("left out, not judged: %s of %s: %s", terminal.Count(n, "pair"), first.Node,
			first.why()))
	}
	return list
}

// Headline summarizes the report in one sentence.
func (s Shown) Headline() string {
	scope := fmt.Sprintf("%s, %s, %s", terminal.Count(s.Nodes, "node"), terminal.Count(s.Pairs, "pair"),
		terminal.Count(s.Paths, "path"))
	if len(s.LeftOut) > 0 {
		scope += fmt.Sprintf("; %s left out, older than %v", terminal.Count(len(s.LeftOut), "pair"), s.MaxAge)
	}
	switch {
	case s.Pairs == 0 && len(s.LeftOut) > 0:
		return fmt.Sprintf("No rounds of the last %v: %s left out.", s.MaxAge, terminal.Count(len(s.LeftOut), "pair"))
	case s.Pairs == 0:
		return "No rounds: Prometheus has no railscope_probe_transport of these nodes."
	case len(s.Blames) == 0:
		return "Nothing to blame: " + scope + "."
	}
	return fmt.Sprintf("%s of %s.", terminal.Count(len(s.Blames), "fault"), scope)
}

// WriteTable writes the report for people.
func (s Shown) WriteTable(w io.Writer, color bool) error {
	p := grid.NewPrinter(w, color)
	p.Painted(s.Headline(), map[bool]string{true: terminal.Green, false: terminal.Red}[s.Good()])
	for _, why := range s.Failed {
		p.Item("not answered: " + why)
	}
	for _, what := range s.leftOut() {
		p.Item(what)
	}
	if text := s.proofs(); text != "" {
		p.Item(text)
	}
	for _, what := range s.errors() {
		p.Item(what)
	}
	for _, what := range s.miswired() {
		p.Item(what)
	}
	for _, b := range s.Blames {
		p.Line("")
		p.Painted(fmt.Sprintf("%s: %s", b.Subject(), strings.ReplaceAll(string(b.Kind), "_", " ")), terminal.Yellow)
		p.Item(b.Evidence)
		for _, text := range b.context(s.Time) {
			p.Item(text)
		}
		p.Item("look at: " + b.Causes)
	}
	return p.Flush()
}

// Good reports whether nothing is blamed and something was judged.
func (s Shown) Good() bool { return len(s.Blames) == 0 && s.Pairs > 0 }

// WriteJSON writes the report for scripts.
func (s Shown) WriteJSON(w io.Writer) error {
	return terminal.WriteJSON(w, s)
}

// WriteDrain writes the nodes that jobs should avoid.
func (s Shown) WriteDrain(w io.Writer) error {
	for _, what := range s.leftOut() {
		if _, err := fmt.Fprintf(w, "# %s\n", terminal.Plain(what)); err != nil {
			return err
		}
	}
	why := map[string][]string{}
	for _, b := range s.Blames {
		if b.Drain() {
			why[b.Name] = append(why[b.Name], b.Subject()+": "+b.Evidence)
		}
	}
	return WriteDrain(w, why)
}

// WriteDrain writes names of nodes, quoted for a shell, each after comments with the reasons. A name that cannot be a
// shell word is replaced by a comment.
func WriteDrain(w io.Writer, why map[string][]string) error {
	for _, name := range slices.Sorted(maps.Keys(why)) {
		word, ok := text.ShellWord(name)
		if !ok || strings.HasPrefix(name, "-") || terminal.Plain(name) != name {
			word = "# the name of this node cannot be written in a shell, or is an option"
		}
		for _, reason := range why[name] {
			if _, err := fmt.Fprintf(w, "# %s\n", terminal.Plain(reason)); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(w, word); err != nil {
			return err
		}
	}
	return nil
}

//go:embed page.tmpl
var page string

// maxMatrix is the maximum number of nodes with a row and a column.
const maxMatrix = 32

// cell is a pair in the matrix.
type cell struct {
	Text  string // worst rail's share of the expected goodput
	Class string
	Title string
}

// matrixRow is a node that starts rounds.
type matrixRow struct {
	Node  string
	Cells []cell
}

// WriteHTML writes the report as one page without external resources.
func (s Shown) WriteHTML(w io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{"plain": terminal.Plain,
		"context": func(b Blame) []string { return b.context(s.Time) }}).Parse(page)
	if err != nil {
		return err
	}
	nodes := s.matrixNodes()
	var names []string
	for _, n := range nodes {
		names = append(names, n.String())
	}
	return t.Execute(w, map[string]any{"Shown": s, "Time": s.Time.UTC().Format(time.DateTime + " UTC"), "Names": names,
		"Matrix": s.matrix(nodes), "Most": maxMatrix, "LeftOut": s.leftOut(),
		"Proofs": s.proofs(), "Errors": s.errors(), "Miswired": s.miswired()})
}

// matrixNodes returns all nodes if they fit, else the nodes of bad paths, blamed ones first.
func (s Shown) matrixNodes() (list []Node) {
	add := func(n Node) {
		if len(list) < maxMatrix && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	all := map[Node]bool{}
	for p := range s.state.Pairs {
		all[p.From], all[p.To] = true, true
	}
	if len(all) > maxMatrix {
		for _, b := range s.Blames {
			if b.Leaf == "" {
				add(b.Node)
			}
		}
		for _, p := range slices.SortedFunc(maps.Keys(s.state.Pairs), comparePairs) {
			if slices.Contains(list, p.From) {
				add(p.To)
			}
		}
	} else {
		for n := range all {
			add(n)
		}
	}
	slices.SortFunc(list, Node.Compare)
	return list
}

func (s Shown) matrix(nodes []Node) (rows []matrixRow) {
	rails := map[Pair][]Path{}
	for p := range s.state.Rounds {
		rails[p.Pair] = append(rails[p.Pair], p)
	}
	for _, list := range rails {
		slices.SortFunc(list, func(a, b Path) int { return a.ends()[0].Compare(b.ends()[0]) })
	}
	for _, from := range nodes {
		row := matrixRow{Node: from.String()}
		for _, to := range nodes {
			row.Cells = append(row.Cells, s.cell(Pair{from, to}, rails[Pair{from, to}]))
		}
		rows = append(rows, row)
	}
	return rows
}

func (s Shown) cell(p Pair, rails []Path) cell {
	transport, known := s.state.Pairs[p]
	switch {
	case !known:
		return cell{}
	case transport == byTCP:
		return cell{"TCP", "bad", p.From.String() + " to " + p.To.String() + ": by TCP"}
	case transport == unreached:
		return cell{"none", "bad", p.From.String() + " to " + p.To.String() + ": no answer"}
	}
	worst, which := 2.0, ""
	for _, path := range rails {
		v, ok := s.state.Rounds[path].ratio()
		if !ok && !s.state.Rounds[path].Up {
			v, ok = 0, true
		}
		if ok && v < worst {
			worst, which = v, path.Rail
		}
	}
	if which == "" {
		return cell{"?", "", p.From.String() + " to " + p.To.String() + ": not measured"}
	}
	class := "good"
	if worst < 0.7 {
		class = "bad"
	} else if worst < 0.85 {
		class = "fair"
	}
	return cell{fmt.Sprintf("%.2f", worst), class,
		fmt.Sprintf("%s to %s: rail %s carries %.2f of what is expected", p.From, p.To, which, worst)}
}
