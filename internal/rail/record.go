package rail

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Record is what is remembered of one rail: its number, and by what it is known
// again. It goes to the state directory as it is.
type Record struct {
	Number     int    `json:"number"`
	Device     string `json:"device"` // as it was last called; never an identity where there is another
	Port       int    `json:"port"`
	Place      string `json:"place,omitempty"` // PCI address and auxiliary device, or net: and where its interface sits
	PCIAddress string `json:"pci_address,omitempty"`
	NodeGUID   string `json:"node_guid,omitempty"`  // only while no other device has the same
	Configured string `json:"configured,omitempty"` // the device/port by which rails.names named it
	// Superseded is set while the rail is away and another one sits at its place:
	// buses have shifted.
	Superseded bool `json:"superseded,omitempty"`
	// Reserved is set as long as the device has not answered: the number is kept
	// for its first port.
	Reserved bool `json:"reserved,omitempty"`
}

// Missing is a rail that is known and not there.
type Missing struct {
	Name, Device string
	Port         int
	PCIAddress   string
}

// Bounds of what is remembered, and believed of a file.
const (
	maxRecords = 256
	maxNumber  = 9999
	maxPort    = 255
	maxText    = 128
)

var validText = regexp.MustCompile(`^[ -~]*$`)

// CheckRecords returns why records that were read from a file cannot be used.
func CheckRecords(records []Record) error {
	if len(records) > maxRecords {
		return fmt.Errorf("%d rails; at most %d are remembered", len(records), maxRecords)
	}
	taken := map[int]bool{}
	for i, r := range records {
		why := r.check()
		if why == nil && taken[r.Number] {
			why = fmt.Errorf("number %d is there twice", r.Number)
		}
		if why != nil {
			return fmt.Errorf("rail %d of the list: %w", i+1, why)
		}
		taken[r.Number] = true
	}
	return nil
}

// check returns what is wrong with the record by itself.
func (r Record) check() error {
	switch {
	case r.Number < 0 || r.Number > maxNumber:
		return fmt.Errorf("number %d is not from 0 to %d", r.Number, maxNumber)
	case r.Port < 1 || r.Port > maxPort:
		return fmt.Errorf("port %d is not from 1 to %d", r.Port, maxPort)
	case r.Device == "":
		return errors.New("no device")
	case r.PCIAddress != "" && !bdf.MatchString(r.PCIAddress):
		return fmt.Errorf("invalid PCI address %.40q", r.PCIAddress)
	}
	for _, text := range []string{r.Device, r.Place, r.NodeGUID, r.Configured} {
		if len(text) > maxText || !validText.MatchString(text) {
			return fmt.Errorf("invalid text %.40q", text)
		}
	}
	return nil
}

// Forget returns the records without the rail of that name, and that rail. The name
// is what names, by "device/port" or "PCI address/port", call it, or its number where
// they call several so.
func Forget(records []Record, name string, names map[string]string) (left []Record, forgotten Record, found bool) {
	configured := func(r Record) string {
		return cmp.Or(names[Key(r.Device, r.Port)], names[Key(r.PCIAddress, r.Port)], names[r.Configured])
	}
	count := map[string]int{}
	for _, r := range records {
		count[configured(r)]++
	}
	for _, r := range records {
		called := configured(r)
		if called == "" || count[called] > 1 {
			called = strconv.Itoa(r.Number)
		}
		if called == name && !found {
			forgotten, found = r, true
			continue
		}
		left = append(left, r)
	}
	return left, forgotten, found
}

// usableGUID returns a node GUID that can tell devices apart, or nothing.
func usableGUID(guid string) string {
	if strings.Trim(guid, "0:") == "" || len(guid) > maxText || !validText.MatchString(guid) {
		return ""
	}
	return strings.ToLower(guid)
}
