// Package doctortest provides captured machines for the tests of doctor: trees of files, the replies of their kernel,
// and changes that each make one fault.
package doctortest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

// testdata is relative to the packages that use it.
const testdata = "../testdata/"

// File returns a change that writes one file.
func File(path, content string) string { return "-- " + path + " --\n" + content + "\n" }

// Machine gathers the facts of a captured machine with one change: lines "gone PATH" of paths to remove, then files to
// write over the machine's own.
func Machine(t testing.TB, name, change string) *facts.Facts {
	t.Helper()
	f := facts.New(Captured(t, name, change)).Gather(t.Context(), facts.All)
	f.Node = name
	return f
}

// Captured unpacks a captured machine with one change.
func Captured(t testing.TB, name, change string) facts.Options {
	t.Helper()
	root := sysfstest.Unpack(t, testdata+name+".txtar")
	Apply(t, root, change)
	return options(root)
}

// Learned is Captured for a restarted node that saw the machine without the change for some time, with these figures in
// its configuration.
func Learned(t testing.TB, name, change string, config expect.Config) facts.Options {
	t.Helper()
	root := sysfstest.Unpack(t, testdata+name+".txtar")
	var records []rail.Record
	var memory expect.Memory
	finder := rail.NewFinder(root.Sys(), rail.Options{}, nil, 10*time.Second)
	_ = finder.Remember(nil, func(list []rail.Record) { records = list }) // all records are valid
	keeper := expect.New(expect.Options{Sysfs: root.Sys(), Find: finder.Snapshot, Budget: 10 * time.Second,
		Save: func(m expect.Memory) { memory = m }})
	keeper.Observe()
	keeper.Observe()
	Apply(t, root, change)
	finder = rail.NewFinder(root.Sys(), rail.Options{}, nil, 10*time.Second)
	if err := errors.Join(finder.Remember(records, nil), memory.Check()); err != nil {
		t.Fatal(err)
	}
	o := options(root)
	o.Rails = finder.Snapshot
	o.Expect = expect.New(expect.Options{Sysfs: root.Sys(), Find: finder.Snapshot, Memory: memory, Config: config})
	return o
}

// Apply makes a change: lines "gone PATH" of paths to remove, then files to write over the machine's own.
func Apply(t testing.TB, root sysfstest.Root, change string) {
	t.Helper()
	var files strings.Builder
	for line := range strings.Lines(change) {
		path, gone := strings.CutPrefix(strings.TrimSpace(line), "gone ")
		if !gone {
			files.WriteString(line)
			continue
		}
		if _, err := os.Lstat(filepath.Join(root.Dir, path)); err != nil {
			t.Fatal(err) // the change would do nothing
		}
		if err := os.RemoveAll(filepath.Join(root.Dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	sysfstest.Write(t, root.Dir, []byte(files.String()))
}

func options(root sysfstest.Root) facts.Options {
	k := kernel{root}
	return facts.Options{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: root.Dir, Rails: Rails(root.Sys()),
		Kernel: &facts.Kernel{Addresses: k.addresses, Path: k.path, Gateways: k.gateways,
			LinkReason: k.linkReason}}
}

// Rails finds the rails of a captured tree.
func Rails(sysfs string) func() rail.Snapshot {
	return rail.NewFinder(sysfs, rail.Options{}, nil, 10*time.Second).Snapshot
}

// kernel answers queries from the files below kernel/.
type kernel struct{ root sysfstest.Root }

func (k kernel) index(netdev string) int {
	n, err := sysfs.ReadUint(k.root.Sys("class/net", netdev, "ifindex"))
	if err != nil {
		panic(err) // the fixture is incomplete
	}
	return int(n)
}

func (k kernel) prefixes(dir string) map[int][]netip.Prefix {
	all := map[int][]netip.Prefix{}
	list, _ := os.ReadDir(filepath.Join(k.root.Dir, "kernel", dir)) // a missing directory is empty
	for _, e := range list {
		data, err := os.ReadFile(filepath.Join(k.root.Dir, "kernel", dir, e.Name()))
		if err != nil {
			panic(err)
		}
		for text := range strings.FieldsSeq(string(data)) {
			all[k.index(e.Name())] = append(all[k.index(e.Name())], netip.MustParsePrefix(text))
		}
	}
	return all
}

func (k kernel) addresses() (map[int][]netip.Prefix, error) { return k.prefixes("addresses"), nil }

// Kernel answers for a whole node: from addresses, routes, kernel/pfc (a bit per priority), kernel/pause (received and
// sent), kernel/nolink (why an interface has no link) and kernel/open (the error of opening a device). Without a file,
// PFC is on for priority 3, global pause is off and a device opens. With kernel/live, what the files lack does not
// exist.
func Kernel(root sysfstest.Root) *facts.Kernel {
	k := kernel{root}
	return &facts.Kernel{Live: k.answer("live", "") != "", Addresses: k.addresses, Path: k.path, Gateways: k.gateways,
		DCB: k.dcb,
		Pause: func(netdev string) (rx, tx bool, err error) {
			var on [2]int
			_, err = fmt.Sscan(cmp.Or(k.answer("pause", netdev), "0 0"), &on[0], &on[1])
			return on[0] > 0, on[1] > 0, err
		},
		LinkReason: k.linkReason,
		OpenDevice: func(path string) error {
			for _, errno := range []unix.Errno{unix.EACCES, unix.EPERM} {
				if errno.Error() == k.answer("open", filepath.Base(path)) {
					return errno
				}
			}
			return nil
		}}
}

// answer returns the content of a file; empty if it is missing.
func (k kernel) answer(dir, name string) string {
	text, _ := sysfs.ReadString(k.root.Dir, "kernel", dir, name)
	return text
}

// dcb answers from kernel/pfc and kernel/dscp: lines of a DSCP and its priority.
func (k kernel) dcb(netdev string) (d facts.DCB, err error) {
	_, err = fmt.Sscan(cmp.Or(k.answer("pfc", netdev), "8"), &d.PFC)
	if err != nil {
		return d, err
	}
	d.DSCP = map[uint8]uint8{}
	for line := range strings.Lines(k.answer("dscp", netdev)) {
		var dscp, priority uint8
		_, err = fmt.Sscan(line, &dscp, &priority)
		if err != nil {
			return d, err
		}
		d.DSCP[dscp] = priority
	}
	return d, nil
}

func (k kernel) linkReason(netdev string) (string, error) { return k.answer("nolink", netdev), nil }

func (k kernel) gateways(index int) ([]netip.Prefix, error) {
	return k.prefixes("gateways")[index], nil
}

func (k kernel) path(from, _ netip.Addr) (int, error) {
	netdev, err := sysfs.ReadString(k.root.Dir, "kernel/paths", from.String())
	if err != nil {
		return 0, nil
	}
	return k.index(netdev), nil
}

// Tree is a change of a system: the content of each path, "" to remove it, "-> target" for a link.
type Tree map[string]string

// Systems around the rails of a machine.
const (
	HGX    = "system-hgx"
	Spark  = "system-spark"
	RXE    = "system-rxe"
	Laptop = "system-laptop"
	Switch = "system-switch"
	AMD    = "system-amd"
)

// System unpacks a captured system and changes it. PFC is on for priority 3 of hardware, and global pause is off.
func System(t testing.TB, name string, changes ...Tree) facts.Options {
	t.Helper()
	root := sysfstest.Unpack(t, testdata+name+".txtar")
	for _, change := range changes {
		for name, content := range change {
			if err := os.RemoveAll(filepath.Join(root.Dir, name)); err != nil {
				t.Fatal(err)
			}
			if content != "" {
				sysfstest.Write(t, root.Dir,
					txtar.Format(&txtar.Archive{Files: []txtar.File{{Name: name, Data: []byte(content)}}}))
			}
		}
	}
	own := filepath.Join(root.Dir, "root")
	return facts.Options{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: own,
		Budget: time.Minute, // nothing hangs, and the machine of the tests may be busy
		Rails:  Rails(root.Sys()),
		Kernel: &facts.Kernel{
			OpenDevice: func(string) error { return nil },
			DCB:        kernel{root}.dcb,
			Pause:      func(string) (rx, tx bool, err error) { return false, false, nil },
		}}
}

// ConfigSpace returns the configuration space of a PCIe function with these Device Control and ACS Control registers
// (include/uapi/linux/pci_regs.h). Other capabilities precede theirs.
func ConfigSpace(deviceControl, acsControl uint16) string {
	b := make([]byte, 4096)
	b[0x34] = 0x40                     // first capability
	copy(b[0x40:], []byte{0x01, 0x50}) // power management, next
	copy(b[0x50:], []byte{0x10, 0x00}) // PCI Express, the last
	binary.LittleEndian.PutUint16(b[0x58:], deviceControl)
	binary.LittleEndian.PutUint32(b[0x100:], 0x1480_0001|1<<16) // AER, next at 0x148
	binary.LittleEndian.PutUint32(b[0x148:], 0x000d|1<<16)      // ACS, the last
	binary.LittleEndian.PutUint16(b[0x14e:], acsControl)
	return string(b)
}

// Environ returns the content of /proc/PID/environ.
func Environ(vars ...string) string { return strings.Join(vars, "\x00") + "\x00" }

// Job returns a process with these variables.
func Job(vars ...string) Tree {
	return Tree{"proc/1234/comm": "python3\n", "proc/1234/environ": Environ(vars...),
		"proc/1234/ns/net": "-> net:[4026531840]"}
}

// circular matches a fix line that only runs the command that printed it.
var circular = regexp.MustCompile(`^(# )?railscope (doctor|bench|check)( --peer=\S+| [^-\s]\S*)?$`)

// Incomplete returns what a finding lacks: evidence, why it matters, or a fix other than the command that prints it;
// empty if it is complete.
func Incomplete(f finding.Finding) string {
	var lacks []string
	for what, missing := range map[string]bool{"evidence": f.Evidence == "", "why": f.Why == "", "fix": len(f.Fix) == 0,
		"a fix that leads further": slices.ContainsFunc(f.Fix, circular.MatchString)} {
		if missing {
			lacks = append(lacks, what)
		}
	}
	if len(lacks) == 0 {
		return ""
	}
	slices.Sort(lacks)
	return fmt.Sprintf("%s, %s has no %s: %q", f.Check, f.Subject, strings.Join(lacks, ", no "), f.Fix)
}
