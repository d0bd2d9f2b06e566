package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/internal/terminal"
)

// errUnknown is returned when the state of the node is unknown. The output of check says why.
var errUnknown = errors.New("unknown")

// Time limits of check: without a peer, with one, and the age at which an examination no longer counts.
const (
	checkTime     = 2 * time.Second
	checkPeerTime = 15 * time.Second
	staleAfter    = 5 * time.Minute
)

type checkSettings struct {
	*common
	selection
	remote
	minSeverity, peer, tokenFile, format string
	timeout                              time.Duration
}

func (s *checkSettings) define(app *kingpin.Application) *checkSettings {
	cmd := app.Command("check", "Print one line about the health of this node, for Slurm, node-problem-detector, Nagios "+
		"and scripts. It asks the railscope that runs here (--state.dir, else /"+packagedState+"), else --url, "+
		"else examines "+
		"the node itself. The exit code is 0 if the node is healthy, 1 for a finding of --min-severity or worse, 2 if it is "+
		"unknown. See docs/check.md.")
	const variable = "RAILSCOPE_CHECK"
	cmd.Flag("min-severity", "Least severity of a finding for exit code 1: critical, warning or info.").
		Envar(variable+"_MIN_SEVERITY").Default("critical").EnumVar(&s.minSeverity, "critical", "warning", "info")
	s.selection.define(cmd, variable)
	s.remote.define(cmd, variable)
	cmd.Flag("peer", "Also probe this node now, host or host:port, as railscope bench does. It must answer probes.").
		Envar(variable + "_PEER").PlaceHolder("HOST").StringVar(&s.peer)
	tokenFlag(cmd, &s.tokenFile)
	cmd.Flag("timeout", "Longest time, after which the exit code is 2. 2s, with --peer 15s.").
		Envar(variable + "_TIMEOUT").PlaceHolder("DURATION").DurationVar(&s.timeout)
	formatFlag(cmd, variable+"_FORMAT", &s.format, "text", "json")
	return s
}

// checked is the result of check.
type checked struct {
	Level    string            `json:"level"` // ok, critical, warning, info, unknown
	Exit     int               `json:"exit"`
	Text     string            `json:"text"` // the line that check prints
	Source   string            `json:"source"`
	Findings []finding.Finding `json:"findings"` // findings that count, the worst first
}

func (s *checkSettings) run(ctx context.Context, parts *unfinished, w io.Writer) error {
	defer parts.begin("check", nil)()
	if err := s.parse(); err != nil {
		return misuse{err}
	}
	limit := cmp.Or(s.timeout, checkTime)
	if s.timeout == 0 && s.peer != "" {
		limit = checkPeerTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	learnt := make(chan knowledge, 1)
	go func() { learnt <- s.learn(ctx) }()
	var known knowledge
	select {
	case known = <-learnt:
	case <-ctx.Done(): // whatever hangs is left behind
		known.unknown = fmt.Sprintf("no answer within %v", limit)
	}
	out := s.judge(known)
	var err error
	if s.format == "json" {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		err = enc.Encode(out)
	} else {
		_, err = fmt.Fprintln(w, out.Text)
	}
	switch {
	case err != nil || out.Exit == exitUnknown:
		return errors.Join(errUnknown, err)
	case out.Exit == exitFailure:
		return errReported
	}
	return nil
}

// parse returns an error for values that the parser accepts but check does not.
func (s *checkSettings) parse() (err error) {
	switch {
	case s.timeout < 0:
		return fmt.Errorf("--timeout must be above 0, such as 2s, not %v", s.timeout)
	case s.peer != "":
		s.peer, err = parsePeer("--peer", s.peer)
		if err != nil {
			return err
		}
	}
	return cmp.Or(s.selection.parse(), s.remote.parse(), checkToken(s.tokenFile))
}

// knowledge is what check knows about the node.
type knowledge struct {
	source      string // origin of the knowledge, for people
	rails       status.Rails
	down        []downRail
	maintenance bool
	found       []finding.Finding
	round       []finding.Finding // findings of the round with --peer
	peers       int               // peers that railscope probes
	unknown     string            // reason why nothing, or not everything, is known
}

// downRail is a rail that is not up, although it is in use.
type downRail struct {
	name     string
	silenced bool // silenced by an operator
}

// learn asks the running railscope, or the one at --url, or examines the node itself. It also probes the peer.
func (s *checkSettings) learn(ctx context.Context) knowledge {
	known, err := s.ask(ctx)
	if errors.Is(err, errAlone) && s.url == "" {
		known, err = s.examine(ctx)
		if err == nil && s.peer == "" {
			return known
		}
	}
	if err != nil {
		return knowledge{source: known.source, unknown: err.Error()}
	}
	if s.peer != "" && !known.maintenance {
		found, skipped, err := s.probe(ctx)
		if err != nil {
			skipped = err.Error()
		}
		known.round, known.unknown = found, cmp.Or(known.unknown, skipped)
	}
	return known
}

// ask asks a running railscope. Its error wraps errAlone if this command must examine the node itself.
func (s *checkSettings) ask(ctx context.Context) (knowledge, error) {
	known := knowledge{source: "status.sock"}
	at, err := s.runningStatus(ctx, cmp.Or(s.timeout, checkTime))
	if errors.Is(err, errAlone) && s.url != "" {
		known.source = "url"
		at, err = s.get(ctx)
	}
	switch {
	case err != nil:
		return known, err
	case !at.Maintenance && !at.Examined() && s.url == "":
		return known, errAlone // railscope has just started
	}
	known.rails, known.down = at.Count(), downRails(at)
	known.maintenance = at.Maintenance
	known.found, known.peers = standing(at), len(at.Peers)
	// The findings may be too old: their faults may have been fixed.
	known.unknown = unknownState(at)
	if known.unknown != "" {
		now := at.Examination.Hard != nil && at.At.Sub(*at.Examination.Hard) < checkTime
		known.found = slices.DeleteFunc(known.found, func(f finding.Finding) bool {
			return !f.Peer() && !(now && check.Hard(f.Check))
		})
	}
	known.unknown = cmp.Or(known.unknown, unreadRails(at))
	return known, nil
}

// downRails returns the rails of a status that are not up.
func downRails(s *status.Status) (list []downRail) {
	for _, r := range s.Rails {
		if r.Up == nil || *r.Up || r.Unused {
			continue
		}
		silenced := slices.ContainsFunc(s.Findings, func(f finding.Raised) bool {
			return f.Silenced != "" && f.Rail() == r.Name && explainsDown(f.Finding, r.Name)
		})
		list = append(list, downRail{r.Name, silenced})
	}
	return list
}

// explainsDown reports whether a finding explains why a rail is not up. A member of a bond is judged with its bond.
func explainsDown(f finding.Finding, rail string) bool {
	return !f.Recovering && (f.Severity == finding.Critical && strings.HasPrefix(f.Subject, "bond ") ||
		f.Rail() == rail && slices.Contains([]string{"port_down", "netdev_down", "half_unused"}, f.Check))
}

// unknownState returns why a status does not show the state of the node, or empty.
func unknownState(s *status.Status) string {
	switch e := s.Examination; {
	case !s.Examined() || e.At == nil:
		return "railscope has not examined the node yet"
	case e.Error != nil:
		return "the last examination failed: " + *e.Error
	case s.At.Sub(*e.At) > staleAfter:
		return fmt.Sprintf("the last examination ended %v ago", s.At.Sub(*e.At).Round(time.Second))
	}
	return ""
}

// unreadRails returns why some rails are not judged, or empty.
func unreadRails(s *status.Status) string {
	for _, r := range s.Rails {
		if r.Up == nil {
			return fmt.Sprintf("rail %s: its state could not be read", r.Name)
		}
	}
	return ""
}

// examine examines the node once. It judges the node, not the limits of this process: see [check.Check.Own].
func (s *checkSettings) examine(ctx context.Context) (knowledge, error) {
	known := knowledge{source: "self"}
	cfg, err := s.load()
	if err != nil {
		return known, err
	}
	hidden, err := silences(cfg)
	if err != nil {
		return known, err
	}
	_, err = os.Stat(cfg.MaintenanceFile())
	known.maintenance = err == nil
	if known.maintenance {
		return known, nil
	}
	finder, store := s.newFinder(cfg, checkTime)
	f := gatherer(s.common, finder, newKeeper(s.common, cfg, finder, store, nil), nil).Gather(ctx, facts.OneNode)
	if err := ctx.Err(); err != nil {
		return known, fmt.Errorf("examine the node: %w", err) // missing facts would be reported as faults
	}
	for i := range f.Rails {
		switch r := &f.Rails[i]; {
		case r.Unused:
			known.rails.Unused++
		case r.Active() && r.Uncounted:
			known.rails.NotMeasured++
			fallthrough
		case r.Active():
			known.rails.Up++
			fallthrough
		default:
			known.rails.All++
		}
	}
	found := check.Node(f, func(c check.Check) bool { return !c.Own() || slices.Contains(s.only, c.ID) })
	silenced := func(f finding.Finding) bool {
		return slices.ContainsFunc(hidden, func(one finding.Silence) bool { return one.Covers(f, time.Now()) })
	}
	for _, r := range f.Judged() {
		if r.StateID != 0 && !r.Active() {
			known.down = append(known.down, downRail{r.Name, slices.ContainsFunc(found, func(f finding.Finding) bool {
				return silenced(f) && explainsDown(f, r.Name)
			})})
		}
	}
	known.found = slices.DeleteFunc(found, silenced)
	return known, nil
}

// judge derives the result.
func (s *checkSettings) judge(k knowledge) checked {
	k.found, k.round = finding.Causes(k.found), finding.Causes(k.round, k.found...)
	down, less := s.judgeDown(&k)
	found := s.of(slices.Concat(k.found, k.round))
	slices.SortStableFunc(found, finding.Finding.Compare)
	bad := append(s.counting(k), s.bad(s.of(k.round))...)
	slices.SortStableFunc(bad, finding.Finding.Compare)
	out := checked{Level: status.OK, Source: k.source, Findings: append([]finding.Finding{}, found...)}
	switch {
	case k.maintenance:
		out.Text = line(out.Level, "maintenance, nothing is judged", 0)
	case len(bad) > 0:
		out.Level, out.Exit = string(bad[0].Severity), exitFailure
		out.Text = line(out.Level, bad[0].Title(), len(bad)-1)
	case k.unknown != "":
		out.Level, out.Exit = status.Unknown, exitUnknown
		out.Text = line(out.Level, k.unknown, 0)
	case less != nil: // a finding below --min-severity; a rail that is down is still not healthy
		out.Level = string(less.Severity)
		out.Text = line(out.Level, less.Title()+", "+k.rails.String(), 0)
	default:
		out.Text = line(out.Level, rails(k, found)+down+others(found), 0)
	}
	return out
}

// judgeDown judges the rails that are not up. A rail without a finding that explains it becomes a finding. excused
// describes rails that are silenced or ignored. less is the worst finding about another rail.
func (s *checkSettings) judgeDown(k *knowledge) (excused string, less *finding.Finding) {
	var silenced, ignored int
	for _, d := range k.down {
		i := slices.IndexFunc(k.found, func(f finding.Finding) bool { return explainsDown(f, d.name) })
		switch {
		case d.silenced:
			silenced++
		case i < 0 && s.wants("port_down"):
			k.found = append(k.found, finding.Finding{Check: "port_down", Severity: finding.Critical, Subject: "rail " + d.name,
				Evidence: "its port is not up", Fix: []string{"railscope doctor"}})
		case i < 0 || !s.wants(k.found[i].Check):
			ignored++
		case less == nil || k.found[i].Compare(*less) < 0:
			less = &k.found[i]
		}
	}
	k.rails.All -= silenced + ignored
	for _, part := range []struct {
		n    int
		word string
	}{{silenced, "down and silenced"}, {ignored, "down and ignored"}} {
		if part.n > 0 {
			excused += fmt.Sprintf(", %d %s", part.n, part.word)
		}
	}
	return excused, less
}

// bad returns the findings that are severe enough. A finding that is recovering no longer describes the node.
func (s *checkSettings) bad(list []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(list), func(f finding.Finding) bool {
		return f.Recovering || f.Severity.Compare(finding.Severity(s.minSeverity)) > 0
	})
}

// counting returns the findings that make the node bad. It leaves out, unless --only names their check, limits of
// the process: jobs may work. Findings about peers count only if more than half of the peers have one: one faulty
// node must not take all nodes that probe it out of service.
func (s *checkSettings) counting(k knowledge) []finding.Finding {
	list, peers := s.bad(s.of(k.found)), map[string]bool{}
	for _, f := range list {
		if f.Peer() {
			peers[f.Subject] = true
		}
	}
	most := 2*len(peers) > k.peers
	return slices.DeleteFunc(list, func(f finding.Finding) bool {
		switch {
		case slices.Contains(s.only, f.Check):
			return false
		case f.Peer():
			return !most
		}
		return check.IsOwn(f.Check)
	})
}

// rails returns how many rails are up, or why there are none.
func rails(k knowledge, found []finding.Finding) string {
	i := slices.IndexFunc(found, func(f finding.Finding) bool { return f.Check == "no_rails" })
	if i < 0 {
		return k.rails.String()
	}
	why, _, _ := strings.Cut(found[i].Evidence, ": ")
	why, _, _ = strings.Cut(why, " (")
	return why
}

// others returns the numbers of findings below --min-severity and of recovering findings.
func others(found []finding.Finding) (text string) {
	for _, severity := range []finding.Severity{finding.Critical, finding.Warning} {
		n := 0
		for _, f := range found {
			if f.Severity == severity && !f.Recovering {
				n++
			}
		}
		if n > 0 {
			text += ", " + terminal.Count(n, string(severity))
		}
	}
	recovering := 0
	for _, f := range found {
		if f.Recovering && f.Severity != finding.Info {
			recovering++
		}
	}
	if recovering > 0 {
		text += fmt.Sprintf(", %d recovering", recovering)
	}
	return text
}

// maxLine is the length of the line in bytes, as node-problem-detector counts it.
const maxLine = 80

// line formats a line of at most maxLine bytes. more is the number of other findings.
func line(level, text string, more int) string {
	prefix, suffix := "railscope: "+level+": ", ""
	if more > 0 {
		suffix = fmt.Sprintf(" (+%d more)", more)
	}
	text = strings.Join(strings.Fields(terminal.Plain(text)), " ")
	if room := maxLine - len(prefix) - len(suffix); len(text) > room {
		text = strings.ToValidUTF8(text[:room-len("...")], "") + "..."
	}
	return prefix + text + suffix
}

// probe probes the peer once. skipped says why there was no round.
func (s *checkSettings) probe(ctx context.Context) (found []finding.Finding, skipped string, err error) {
	cfg, err := s.load()
	if err != nil {
		return nil, "", err
	}
	res, err := s.quickRound(ctx, cfg, s.peer, s.tokenFile)
	if err != nil {
		return nil, "", err
	}
	return check.Round(res), skippedBecause(res), nil
}
