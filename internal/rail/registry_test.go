package rail

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// world describes the result of one scan, one device per word in any order.
//
//	mlx5_0@18=a      examined: name, bus number, node GUID; /2 behind the name is a second port
//	mlx5_0@18.4=a    an auxiliary device of the function
//	mlx5_1@3a?       does not answer; without @3a not even its links do
//	-mlx5_2@4b=c     excluded
//	+3b              a function that is part of a bond
type world struct {
	when   string
	sees   string
	names  map[string]string
	reboot bool // a new process with the state of the previous one
	want   string
}

func guid(letter string) string {
	switch letter {
	case "", "0":
		return ""
	}
	return "b859:9f03:0000:000" + letter
}

func sightingOf(tb testing.TB, word string) (s sighting) {
	tb.Helper()
	if rest, ok := strings.CutPrefix(word, "-"); ok {
		s, word = sighting{kind: excludedDevice}, rest
	}
	if rest, ok := strings.CutSuffix(word, "?"); ok {
		s, word = sighting{kind: unexamined}, rest
	}
	word, letter, _ := strings.Cut(word, "=")
	s.NodeGUID = guid(letter)
	name, bus, _ := strings.Cut(word, "@")
	device, port, _ := strings.Cut(name, "/")
	s.Device = device
	if s.kind == examinedPort {
		s.Port = 1
	}
	if port != "" {
		n, err := strconv.Atoi(port)
		if err != nil {
			tb.Fatal(word, err)
		}
		s.Port = n
	}
	if bus != "" {
		bus, aux, _ := strings.Cut(bus, ".")
		s.PCIAddress = "0000:" + bus + ":00.0"
		s.Place = s.PCIAddress
		if aux != "" {
			s.Place += "/mlx5_core.sf." + aux
		}
	}
	return s
}

// show passes a world to the registry, and returns names and missing rails.
func show(tb testing.TB, b *registry, w world) string {
	tb.Helper()
	var seen []sighting
	taken := map[string]bool{}
	for word := range strings.FieldsSeq(w.sees) {
		if bus, ok := strings.CutPrefix(word, "+"); ok {
			taken["0000:"+bus+":00.0"] = true
			continue
		}
		seen = append(seen, sightingOf(tb, word))
	}
	slices.SortStableFunc(seen, func(a, b sighting) int {
		return NaturalCompare(Key(a.Device, a.Port), Key(b.Device, b.Port))
	})
	names, missing := b.assign(seen, w.names, absence{bonded: taken})
	var out []string
	for i, s := range seen {
		if s.kind != examinedPort {
			continue
		}
		device := s.Device
		if s.Port > 1 {
			device = Key(s.Device, s.Port)
		}
		out = append(out, device+":"+names[i])
	}
	for _, m := range missing {
		out = append(out, "missing:"+m.Name)
	}
	return strings.Join(out, " ")
}

// reboot returns the registry of the next process.
func reboot(tb testing.TB, b *registry) *registry {
	tb.Helper()
	data, err := json.Marshal(b.list())
	if err != nil {
		tb.Fatal(err)
	}
	var records []Record
	if err := json.Unmarshal(data, &records); err != nil {
		tb.Fatal(err)
	}
	next := &Finder{}
	if err := next.Remember(records, nil); err != nil {
		tb.Fatal(err)
	}
	return &next.registry
}

var four = "mlx5_0@18=a mlx5_1@3a=b mlx5_2@4b=c mlx5_3@5c=d"

// TestRailsKeepTheirNames: rails keep their names through changes of the node.
func TestRailsKeepTheirNames(t *testing.T) {
	for name, worlds := range map[string][]world{
		"nothing but its name is known while the kernel adds a device": {
			{when: "start", sees: "rxe0@18=a rxe1@3a=b", want: "rxe0:0 rxe1:1"},
			{when: "deleted", sees: "", want: "missing:0 missing:1"},
			{when: "added again", sees: "rxe0@18=a rxe1", want: "rxe0:0 rxe1:1"},
			{when: "complete", sees: "rxe0@18=a rxe1@3a=b", want: "rxe0:0 rxe1:1"},
		},
		"a device that is slow at the start": {
			{when: "slow", sees: "mlx5_0@18=a mlx5_1@3a? mlx5_2@4b=c", want: "mlx5_0:0 mlx5_2:2"},
			{when: "answers", sees: "mlx5_0@18=a mlx5_1@3a=b mlx5_2@4b=c", want: "mlx5_0:0 mlx5_1:1 mlx5_2:2"},
		},
		"even its links hang": {
			{when: "slow", sees: "mlx5_0@18=a mlx5_1? mlx5_2@4b=c", want: "mlx5_0:0 mlx5_2:2"},
			{when: "restart while slow", reboot: true, sees: "mlx5_0@18=a mlx5_1@3a? mlx5_2@4b=c",
				want: "mlx5_0:0 mlx5_2:2"},
			{when: "answers", sees: "mlx5_0@18=a mlx5_1@3a=b mlx5_2@4b=c", want: "mlx5_0:0 mlx5_1:1 mlx5_2:2"},
		},
		"slow, and renamed when it answers": {
			{when: "slow", sees: "mlx5_0@18=a mlx5_1@3a? mlx5_2@4b=c", want: "mlx5_0:0 mlx5_2:2"},
			{when: "renamed", sees: "mlx5_0@18=a rocep58s0@3a=b mlx5_2@4b=c", want: "mlx5_0:0 mlx5_2:2 rocep58s0:1"},
		},
		"slow, and a virtual function": {
			{when: "slow", sees: "mlx5_0@18=a mlx5_1? mlx5_2@4b=c", want: "mlx5_0:0 mlx5_2:2"},
			{when: "it is none", sees: "mlx5_0@18=a mlx5_2@4b=c", want: "mlx5_0:0 mlx5_2:2"},
			{when: "the number is free", sees: "mlx5_0@18=a mlx5_2@4b=c mlx5_3@5c=d",
				want: "mlx5_0:0 mlx5_2:2 mlx5_3:1"},
		},
		"a known device that hangs is not missing": {
			{when: "start", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "hangs after a restart", reboot: true, sees: "mlx5_0@18=a mlx5_1@3a? mlx5_2? mlx5_3@5c=d",
				want: "mlx5_0:0 mlx5_3:3"},
		},
		"udev renames": {
			{when: "start", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "renamed", sees: "rocep92s0@5c=d rocep75s0@4b=c rocep58s0@3a=b rocep24s0@18=a",
				want: "rocep24s0:0 rocep58s0:1 rocep75s0:2 rocep92s0:3"},
			{when: "names swapped", sees: "mlx5_0@5c=d mlx5_1@4b=c mlx5_2@3a=b mlx5_3@18=a",
				want: "mlx5_0:3 mlx5_1:2 mlx5_2:1 mlx5_3:0"},
		},
		"a card is gone after a reboot": {
			{when: "start", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "gone", reboot: true, sees: "mlx5_0@18=a mlx5_1@4b=c mlx5_2@5c=d",
				want: "mlx5_0:0 mlx5_1:2 mlx5_2:3 missing:1"},
			{when: "back", reboot: true, sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
		},
		"its bus numbers shift": {
			{when: "start", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "shifted", reboot: true, sees: "mlx5_0@18=b mlx5_1@3a=c mlx5_2@4b=d",
				want: "mlx5_0:1 mlx5_1:2 mlx5_2:3 missing:0"},
			{when: "and back", reboot: true, sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
		},
		"one more card in front": {
			{when: "start", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "more", reboot: true, sees: "mlx5_0@18=e mlx5_1@3a=a mlx5_2@4b=b mlx5_3@5c=c mlx5_4@6d=d",
				want: "mlx5_0:4 mlx5_1:0 mlx5_2:1 mlx5_3:2 mlx5_4:3"},
		},
		"a card is gone, and the one at its place hangs": {
			{when: "start", sees: "mlx5_0@18=a mlx5_1@3a=b", want: "mlx5_0:0 mlx5_1:1"},
			{when: "gone", reboot: true, sees: "mlx5_0@18=b", want: "mlx5_0:1 missing:0"},
			{when: "hangs", reboot: true, sees: "mlx5_0@18?", want: "missing:0"},
			{when: "back, and hangs itself", reboot: true, sees: "mlx5_0@18? mlx5_1@3a=b", want: "mlx5_1:1"},
		},
		"two cards swapped": {
			{when: "start", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "swapped", reboot: true, sees: "mlx5_0@18=b mlx5_1@3a=a mlx5_2@4b=c mlx5_3@5c=d",
				want: "mlx5_0:1 mlx5_1:0 mlx5_2:2 mlx5_3:3"},
		},
		"a card replaced in its slot": {
			{when: "start", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "out", reboot: true, sees: "mlx5_0@18=a mlx5_1@4b=c mlx5_2@5c=d",
				want: "mlx5_0:0 mlx5_1:2 mlx5_2:3 missing:1"},
			{when: "another one in", reboot: true, sees: "mlx5_0@18=a mlx5_1@3a=e mlx5_2@4b=c mlx5_3@5c=d",
				want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "and its GUID is known now", reboot: true, sees: "mlx5_0@18=a mlx5_1@99=e mlx5_2@4b=c mlx5_3@5c=d",
				want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
		},
		"a card replaced after its bus numbers shifted": {
			{when: "start", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "out", reboot: true, sees: "mlx5_0@18=b mlx5_1@3a=c mlx5_2@4b=d",
				want: "mlx5_0:1 mlx5_1:2 mlx5_2:3 missing:0"},
			{when: "replaced meanwhile", reboot: true, sees: "mlx5_0@18=e mlx5_1@3a=c mlx5_2@4b=d",
				want: "mlx5_0:1 mlx5_1:2 mlx5_2:3 missing:0"},
			{when: "another one in", reboot: true, sees: "mlx5_0@18=f mlx5_1@3a=e mlx5_2@4b=c mlx5_3@5c=d",
				want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
		},
		"a card moved to another slot": {
			{when: "start", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "moved", reboot: true, sees: "mlx5_0@18=a mlx5_1@4b=c mlx5_2@5c=d mlx5_3@6d=b",
				want: "mlx5_0:0 mlx5_1:2 mlx5_2:3 mlx5_3:1"},
		},
		"a bond made, and undone": {
			{when: "start", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "made", sees: "mlx5_bond_0@18=a mlx5_2@4b=c mlx5_3@5c=d +18 +3a",
				want: "mlx5_2:2 mlx5_3:3 mlx5_bond_0:0"},
			{when: "reboot", reboot: true, sees: "mlx5_bond_0@18=a mlx5_0@4b=c mlx5_1@5c=d +18 +3a",
				want: "mlx5_0:2 mlx5_1:3 mlx5_bond_0:0"},
			{when: "undone", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
		},
		"subfunctions share an address": {
			{when: "start", sees: "mlx5_0@18=a mlx5_1@3a=b", want: "mlx5_0:0 mlx5_1:1"},
			{when: "added", sees: "mlx5_0@18=a mlx5_1@3a=b mlx5_2@18.4=e mlx5_3@18.5=0",
				want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "renumbered", reboot: true, sees: "mlx5_0@18.5=0 mlx5_1@18.4=e mlx5_2@18=a mlx5_3@3a=b",
				want: "mlx5_0:3 mlx5_1:2 mlx5_2:0 mlx5_3:1"},
		},
		"a second port": {
			{when: "start", sees: "mlx4_0@18=a mlx4_0/2@18=a mlx4_1@3a=b mlx4_1/2@3a=b",
				want: "mlx4_0:0 mlx4_0/2:1 mlx4_1:2 mlx4_1/2:3"},
			{when: "shifted", reboot: true, sees: "mlx4_0@18=b mlx4_0/2@18=b",
				want: "mlx4_0:2 mlx4_0/2:3 missing:0 missing:1"},
			{when: "hangs", sees: "mlx4_0@18=b mlx4_0/2@18=b mlx4_1@3a?",
				want: "mlx4_0:2 mlx4_0/2:3 missing:0 missing:1"},
		},
		"excluded by a reload": {
			{when: "start", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "excluded", sees: "mlx5_0@18=a -mlx5_1@3a=b mlx5_2@4b=c mlx5_3@5c=d mlx5_4@6d=e",
				want: "mlx5_0:0 mlx5_2:2 mlx5_3:3 mlx5_4:4"},
			{when: "shifted", reboot: true, sees: "-mlx5_0@18=b mlx5_1@3a=c mlx5_2@4b=d",
				want: "mlx5_1:2 mlx5_2:3 missing:0 missing:4"},
			{when: "included", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3 missing:4"},
		},
		"names, and an empty reload": {
			{when: "named", sees: four, names: map[string]string{"mlx5_0/1": "east", "0000:5c:00.0/1": "west"},
				want: "mlx5_0:east mlx5_1:1 mlx5_2:2 mlx5_3:west"},
			{when: "empty", sees: four, want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3"},
		},
		"a name goes with a renamed device": {
			{when: "named", sees: four, names: map[string]string{"mlx5_1/1": "east"},
				want: "mlx5_0:0 mlx5_1:east mlx5_2:2 mlx5_3:3"},
			{when: "renamed", sees: "mlx5_0@18=a rocep58s0@3a=b mlx5_2@4b=c mlx5_3@5c=d",
				names: map[string]string{"mlx5_1/1": "east"}, want: "mlx5_0:0 mlx5_2:2 mlx5_3:3 rocep58s0:east"},
			{when: "another has the name", sees: "mlx5_0@18=a rocep58s0@3a=b mlx5_1@4b=c mlx5_3@5c=d",
				names: map[string]string{"mlx5_1/1": "east"}, want: "mlx5_0:0 mlx5_1:east mlx5_3:3 rocep58s0:1"},
		},
		"a name that is a number": {
			{when: "of another rail", sees: four, names: map[string]string{"mlx5_0/1": "1"},
				want: "mlx5_0:1 mlx5_1:2 mlx5_2:3 mlx5_3:4"},
			{when: "given by a reload", sees: four, names: map[string]string{"mlx5_0/1": "3"},
				want: "mlx5_0:3 mlx5_1:2 mlx5_2:1 mlx5_3:4"},
			{when: "its own", sees: four, names: map[string]string{"mlx5_0/1": "0"},
				want: "mlx5_0:0 mlx5_1:2 mlx5_2:1 mlx5_3:4"},
		},
		"named and not there": {
			{when: "never seen", sees: four, names: map[string]string{"mlx5_9/1": "east", "0000:99:00.0/1": "west"},
				want: "mlx5_0:0 mlx5_1:1 mlx5_2:2 mlx5_3:3 missing:east missing:west"},
			{when: "gone", sees: "mlx5_0@18=a", names: map[string]string{"mlx5_3/1": "east"},
				want: "mlx5_0:0 missing:1 missing:2 missing:east"},
			{when: "there by another name", sees: four,
				names: map[string]string{"mlx5_0/1": "east", "0000:18:00.0/1": "west"},
				want:  "mlx5_0:east mlx5_1:1 mlx5_2:2 mlx5_3:3"},
			{when: "does not answer", sees: "mlx5_0@18=a mlx5_1? mlx5_2@4b? mlx5_9@99?",
				names: map[string]string{"mlx5_9/1": "east"}, want: "mlx5_0:0 missing:3"},
		},
		"a missing rail whose name another one has now": {
			{when: "start", sees: "mlx5_0@18=a mlx5_1@3a=b",
				names: map[string]string{"mlx5_0/1": "east", "mlx5_1/1": "west"}, want: "mlx5_0:east mlx5_1:west"},
			{when: "gone", reboot: true, sees: "mlx5_0@3a=b",
				names: map[string]string{"mlx5_0/1": "east", "mlx5_1/1": "west"},
				want:  "mlx5_0:east missing:0 missing:west"},
		},
		"GUIDs that are no identity": {
			{when: "zero", sees: "mlx5_0@18=0 mlx5_1@3a=0", want: "mlx5_0:0 mlx5_1:1"},
			{when: "renamed", reboot: true, sees: "mlx5_0@3a=0 mlx5_1@18=0", want: "mlx5_0:1 mlx5_1:0"},
			{when: "the same", sees: "mlx5_0@3a=a mlx5_1@18=a", want: "mlx5_0:1 mlx5_1:0"},
			{when: "and one is gone", reboot: true, sees: "mlx5_0@99=a", want: "mlx5_0:2 missing:0 missing:1"},
		},
		"nothing but a name": {
			{when: "start", sees: "rxe0 rxe1", want: "rxe0:0 rxe1:1"},
			{when: "one is gone", reboot: true, sees: "rxe1", want: "rxe1:1 missing:0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &registry{}
			for _, w := range worlds {
				if w.reboot {
					b = reboot(t, b)
				}
				for _, again := range []string{"", ", seen again"} {
					if diff := cmp.Diff(w.want, show(t, b, w)); diff != "" {
						t.Errorf("%s%s (-want +got):\n%s%+v", w.when, again, diff, b.list())
					}
				}
			}
		})
	}
}

// TestNamesHold simulates machines: cards with GUIDs are in slots, removed, swapped and replaced; boots shift
// buses, udev renames devices, devices hang and are excluded. In any sequence, no two rails have one name, and each
// keeps its name.
func TestNamesHold(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 11))
		b := &registry{}
		slots := rng.Perm(12)[:8] // slot of each card
		present := [8]bool{true, true, true, true, true, true, true, true}
		letters := strings.Split("1 2 3 4 5 6 7 8", " ")
		names := map[int]string{}
		examined := map[int]bool{} // devices examined by the last scan
		var history []string
		for step := range 40 {
			event := rng.IntN(6)
			if step == 0 {
				event = -1 // all are present at first
			}
			switch i, j := rng.IntN(8), rng.IntN(8); event {
			case 4: // a replacement in the same slot
				if examined[i] {
					letters[i] = fmt.Sprint(9 + step)
				}
			case 0:
				present[i] = !present[i]
			case 1:
				slots[i], slots[j] = slots[j], slots[i]
			case 2: // a bus shift: all bus numbers increase
				for k := range slots {
					slots[k] = (slots[k] + 1) % 12
				}
			case 3:
				b = reboot(t, b)
			}
			order := rng.Perm(8) // order of udev's names
			var words []string
			var cards []int
			for at, card := range order {
				word := fmt.Sprintf("mlx5_%d@%02x=%s", at, 16+slots[card], letters[card])
				switch {
				case !present[card]:
					continue
				case step > 0 && letters[card] != fmt.Sprint(9+step) && rng.IntN(8) == 0:
					word = fmt.Sprintf("mlx5_%d?", at)
				case step > 0 && letters[card] != fmt.Sprint(9+step) && rng.IntN(8) == 0:
					word = "-" + word
				default:
					cards = append(cards, card)
				}
				words = append(words, word)
			}
			history = append(history, strings.Join(words, " "))
			got := show(t, b, world{sees: history[len(history)-1]})
			clear(examined)
			for _, card := range cards {
				examined[card] = true
			}
			holder, at := map[string]bool{}, 0
			for word := range strings.FieldsSeq(got) {
				_, name, _ := strings.Cut(word, ":")
				if holder[name] {
					t.Fatalf("seed %d: two rails are %s: %s\n%s", seed, name, got, strings.Join(history, "\n"))
				}
				holder[name] = true
				if strings.HasPrefix(word, "missing:") {
					continue
				}
				card := cards[at]
				at++
				if was := names[card]; was != "" && was != name {
					t.Fatalf("seed %d: card %d was %s and is %s\n%s", seed, card, was, name,
						strings.Join(history, "\n"))
				}
				names[card] = name
			}
		}
	}
}

// TestCheckRecords: invalid records from a file are rejected.
func TestCheckRecords(t *testing.T) {
	good := Record{Number: 1, Device: "mlx5_0", Port: 1, Place: "0000:18:00.0/mlx5_core.sf.4",
		PCIAddress: "0000:18:00.0", NodeGUID: guid("1"), Configured: "mlx5_0/1"}
	if err := CheckRecords([]Record{good, {Device: "rxe0", Port: 1, Place: "net:eth0"}}); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Record){
		"rail 1 of the list: number -1 is not from 0 to 9999":    func(r *Record) { r.Number = -1 },
		"rail 1 of the list: number 10000 is not from 0 to 9999": func(r *Record) { r.Number = 10000 },
		"rail 1 of the list: port 0 is not from 1 to 255":        func(r *Record) { r.Port = 0 },
		"rail 1 of the list: no device":                          func(r *Record) { r.Device = "" },
		`rail 1 of the list: invalid text "mlx5\n"`:              func(r *Record) { r.Device = "mlx5\n" },
		`rail 1 of the list: invalid PCI address "18:00.0"`:      func(r *Record) { r.PCIAddress = "18:00.0" },
		`rail 1 of the list: invalid text "\x1b[0m"`:             func(r *Record) { r.NodeGUID = "\x1b[0m" },
	} {
		r := good
		change(&r)
		if err := CheckRecords([]Record{r}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := CheckRecords([]Record{good,
		good}); err == nil || err.Error() != "rail 2 of the list: duplicate number 1" {
		t.Error(err)
	}
	if err := CheckRecords(make([]Record, maxRecords+1)); err == nil {
		t.Error("too many were taken")
	}
}

// TestOddNames: a device whose name cannot be saved is numbered like others, and the records saved beside it can be
// read.
func TestOddNames(t *testing.T) {
	b := &registry{}
	odd := "\u202e" + strings.Repeat("x", 2)
	if got, want := show(t, b, world{sees: "mlx5_0@18=a " + odd}), "mlx5_0:0 "+odd+":1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := show(t, reboot(t, b), world{sees: "mlx5_1@3a=b mlx5_0@18=a"}), "mlx5_0:0 mlx5_1:1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestForget: a rail is forgotten by its current name.
func TestForget(t *testing.T) {
	b := &registry{}
	names := map[string]string{"mlx5_1/1": "east", "0000:4b:00.0/1": "west"}
	show(t, b, world{sees: four, names: names})
	for name, want := range map[string]string{"0": "mlx5_0", "east": "mlx5_1", "west": "mlx5_2", "3": "mlx5_3", "1": "",
		"mlx5_0": ""} {
		left, r, found := Forget(b.list(), name, names)
		if r.Device != want || found != (want != "") || found && len(left) != 3 || !found && len(left) != 4 {
			t.Errorf("%s: %v, %v, %d left", name, r, found, len(left))
		}
	}
	// The card of mlx5_1 is gone, and another card has its name.
	show(t, b, world{sees: "mlx5_0@18=a mlx5_1@4b=c mlx5_2@5c=d", names: map[string]string{"mlx5_1/1": "east"}})
	for name, want := range map[string]string{"1": "0000:3a:00.0", "east": ""} {
		if _, r, found := Forget(b.list(), name,
			map[string]string{"mlx5_1/1": "east"}); r.PCIAddress != want || found != (want != "") {
			t.Errorf("%s: %v, %v", name, r, found)
		}
	}
}

// TestMoreThanAreRemembered: if there are more rails than can be remembered, the first ones are, and the saved
// records are accepted again.
func TestMoreThanAreRemembered(t *testing.T) {
	b := &registry{}
	words := make([]string, 0, maxRecords+10)
	for i := range cap(words) {
		words = append(words, fmt.Sprintf("rxe%d", i))
	}
	show(t, b, world{sees: strings.Join(words, " ")})
	if err := CheckRecords(b.list()); err != nil || len(b.list()) != maxRecords {
		t.Errorf("%d records: %v", len(b.list()), err)
	}
	if got := show(t, reboot(t, b), world{sees: "rxe200"}); !strings.HasPrefix(got, "rxe200:200 ") {
		t.Errorf("%.40s", got)
	}
}

// TestRegistryIsBounded: devices that always come with new identities are forgotten; present ones are not.
func TestRegistryIsBounded(t *testing.T) {
	b := &registry{}
	for i := range 3 * maxRecords {
		got := show(t, b, world{sees: fmt.Sprintf("mlx5_0@18=a veth%d", i)})
		if !strings.HasPrefix(got, "mlx5_0:0 ") {
			t.Fatal(got)
		}
	}
	if n := len(b.records); n > maxRecords {
		t.Errorf("%d records", n)
	}
	if err := CheckRecords(b.list()); err != nil {
		t.Error(err)
	}
	numbers := map[int]bool{}
	for _, r := range b.list() {
		numbers[r.Number] = true
	}
	if len(slices.Collect(maps.Keys(numbers))) != len(b.records) {
		t.Error("two records have one number")
	}
}
