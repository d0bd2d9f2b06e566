// Package classes finds the priority of the rails' bytes: how an adapter sorts packets, which priorities are lossless,
// what was sent in them, and by whom.
package classes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/priority"
	"github.com/railscope/railscope/internal/terminal"
)

// Payload of the probe is less than its bytes on the wire.
const probeWire = 1.3

// Variables returns the variables by which jobs choose a traffic class.
func Variables() []string { return []string{"NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS"} }

// Setting returns a setting of a rail; empty if it could not be read.
func Setting(f *facts.Facts, r *facts.Rail, name string) string {
	for _, q := range f.QoS {
		for _, set := range q.Settings {
			if q.Device == r.Device && q.Port == r.Port && set.Name == name {
				return set.Value
			}
		}
	}
	return ""
}

// Lossless returns the priorities with PFC of a rail; known is false if they could not be read, or if global pause
// makes all of them lossless.
func Lossless(f *facts.Facts, r *facts.Rail) (priorities []string, known bool) {
	pause, pfc := Setting(f, r, "pause"), Setting(f, r, "pfc")
	switch {
	case pfc == "" || pause != "" && pause != "rx off tx off":
		return nil, false
	case pfc == "none":
		return nil, true
	}
	return strings.Split(pfc, ","), true
}

// Sent holds the bytes that a rail sent in the window of [facts.Live].
type Sent struct {
	RDMA float64            // by RDMA, without those of the probe
	By   map[string]float64 // bytes of the physical port by priority; nil: its driver does not count them
}

// SentBy returns what a rail sent.
func SentBy(l *facts.Live, rail string) Sent {
	s := Sent{By: map[string]float64{}}
	rdma, total := l.Increased(rail, "port_transmit_bytes_total"), 0.0
	for _, i := range l.Increases {
		if i.Row == "port_priority_bytes_total" && i.Labels[0] == rail && i.Labels[3] == "transmit" {
			s.By[i.Labels[2]] += i.By
			total += i.By
		}
	}
	s.RDMA = max(0, rdma-probeWire*l.Increased(rail, "probe_rail_bytes_total"))
	if len(s.By) == 0 || total < 0.9*rdma { // some drivers' priorities are without RDMA
		s.By = nil
	}
	return s
}

// Of returns the priorities of the judged rails that are lossless, were used, or to which a setting leads. probe is the
// traffic class of the probe; nil: there is no probe.
func Of(f *facts.Facts, probe *uint8) []priority.Use {
	return of(f, probe, func(env facts.Env, variable string, class uint8) string {
		who := terminal.PlainName(env.Processes[0].Comm)
		if env.Count > 1 {
			who = fmt.Sprintf("%d × %s", env.Count, who)
		}
		return fmt.Sprintf("%s (%s=%d)", who, variable, class)
	})
}

// Served is like Of for everybody who may see the page: it names no processes and no values of variables.
func Served(f *facts.Facts, probe *uint8) []priority.Use {
	return of(f, probe, func(env facts.Env, _ string, _ uint8) string { return terminal.Count(env.Count, "process") })
}

// describe returns the text about the processes of an environment, whose variable selects a class.
type describe func(env facts.Env, variable string, class uint8) string

func of(f *facts.Facts, probe *uint8, text describe) (list []priority.Use) {
	for _, r := range f.Judged() {
		list = append(list, ofRail(f, r, probe, text)...)
	}
	return list
}

func ofRail(f *facts.Facts, r *facts.Rail, probe *uint8, text describe) (list []priority.Use) {
	lossless, known := Lossless(f, r)
	var sent map[string]float64
	if f.Live != nil && f.Live.Over > 0 {
		sent = SentBy(f.Live, r.Name).By
	}
	jobs := jobsOf(f, r, text)
	probed := ""
	if probe != nil {
		probed, _ = LeadsTo(f, r, *probe)
	}
	for _, p := range []string{"0", "1", "2", "3", "4", "5", "6", "7", ""} {
		ofProbe := probe != nil && p == probed
		if !slices.Contains(lossless, p) && sent[p] == 0 && jobs[p] == nil && !ofProbe {
			continue
		}
		u := priority.Use{Rail: r.Name, Priority: p, Jobs: append([]string{}, jobs[p]...), Probe: ofProbe}
		if p != "" {
			u.DSCP = dscpsOf(Setting(f, r, "dscp"), p)
			if known {
				u.Lossless = new(slices.Contains(lossless, p))
			}
			if sent != nil {
				u.Sent = new(sent[p] / f.Live.Over.Seconds())
			}
		}
		list = append(list, u)
	}
	if len(list) == 1 && list[0].Priority == "" {
		return nil // an adapter of which nothing is known, such as one of InfiniBand
	}
	return list
}

// jobsOf returns the processes by the priority to which their traffic class leads.
func jobsOf(f *facts.Facts, r *facts.Rail, text describe) map[string][]string {
	jobs := map[string][]string{}
	for _, env := range f.Jobs.Envs {
		for _, variable := range Variables() {
			class, ok := ClassOf(env, variable)
			if ok && !env.Foreign && len(env.Processes) > 0 {
				p, _ := LeadsTo(f, r, class)
				jobs[p] = append(jobs[p], text(env, variable, class))
			}
		}
	}
	return jobs
}

// ClassOf returns the traffic class that a variable of an environment sets; ok is false if it is not set or no number,
// such as UCX's auto.
func ClassOf(env facts.Env, variable string) (class uint8, ok bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(env.Vars[variable]), 0, 8)
	return uint8(n), err == nil
}

// Set returns the traffic classes that the jobs of a node set, sorted. A peer may send numbers that are none.
func Set(f *facts.Facts) (list []int) {
	list = slices.DeleteFunc(slices.Clone(f.Jobs.Classes), func(class int) bool { return class < 0 || class > 255 })
	for _, env := range f.Jobs.Envs {
		for _, variable := range Variables() {
			class, ok := ClassOf(env, variable)
			if ok && !env.Foreign && len(env.Processes) > 0 {
				list = append(list, int(class))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// LeadsTo returns the priority into which a rail sorts a traffic class; known is false where that is up to the
// driver, or where something other than the class decides: the VLAN tag, or the class of the whole device.
func LeadsTo(f *facts.Facts, r *facts.Rail, class uint8) (priority string, known bool) {
	device := Setting(f, r, "traffic_class")
	if Setting(f, r, "trust") == "pcp" || device != "" && device != "unset" {
		return "", false
	}
	return priorityOf(Setting(f, r, "dscp"), int(class>>2))
}

// priorityOf finds a DSCP in a text of [facts.DCB], such as "0=0-7 3=24,26". DSCPs that are not in it have priority 0.
func priorityOf(table string, dscp int) (priority string, known bool) {
	if table == "" || table == "none" {
		return "", false
	}
	for word := range strings.FieldsSeq(table) {
		p, list, _ := strings.Cut(word, "=")
		for part := range strings.SplitSeq(list, ",") {
			first, last, isRange := strings.Cut(part, "-")
			from, err := strconv.Atoi(first)
			to, errTo := from, error(nil)
			if isRange {
				to, errTo = strconv.Atoi(last)
			}
			if err == nil && errTo == nil && from <= dscp && dscp <= to {
				return p, true
			}
		}
	}
	return "0", true
}

// dscpsOf returns the DSCPs of a priority in such a text.
func dscpsOf(table, priority string) string {
	for word := range strings.FieldsSeq(table) {
		if p, list, ok := strings.Cut(word, "="); ok && p == priority {
			return list
		}
	}
	return ""
}
