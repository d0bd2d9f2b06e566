package rail

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Record is what is remembered of one rail: its number, and what identifies it. It is written to the state directory.
type Record struct {
	Number     int    `json:"number"`
	Device     string `json:"device"` // the last name; identifies the rail only if nothing else does
	Port       int    `json:"port"`
	Place      string `json:"place,omitempty"` // see Rail.Place
	PCIAddress string `json:"pci_address,omitempty"`
	NodeGUID   string `json:"node_guid,omitempty"`  // only while no other device has the same
	Configured string `json:"configured,omitempty"` // the device/port by which rails.names named it
	// Superseded is set while the rail is absent and another one is at its place: bus numbers have shifted.
	Superseded bool `json:"superseded,omitempty"`
	// Reserved is set until the device answers: the number is for its first port.
	Reserved bool `json:"reserved,omitempty"`
}

// Missing is a known rail that is absent.
type Missing struct {
	Name       string `json:"rail"`
	Device     string `json:"device"`
	Port       int    `json:"port"`
	PCIAddress string `json:"pci_address"`
}

// Bounds of records, also of those from a file.
const (
	maxRecords = 256
	maxNumber  = 9999
	maxPort    = 255
	maxText    = 128
)

var validText = regexp.MustCompile(`^[ -~]*$`)

// CheckRecords validates records that were read from a file.
func CheckRecords(records []Record) error {
	if len(records) > maxRecords {
		return fmt.Errorf("%d rails; at most %d are allowed", len(records), maxRecords)
	}
	taken := map[int]bool{}
	for i, r := range records {
		why := r.check()
		if why == nil && taken[r.Number] {
			why = fmt.Errorf("duplicate number %d", r.Number)
		}
		if why != nil {
			return fmt.Errorf("rail %d of the list: %w", i+1, why)
		}
		taken[r.Number] = true
	}
	return nil
}

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

// Forget returns the records without the rail of that name, and that rail. Its name is the one in names, by
// "device/port" or "PCI address/port", or its number if several have the same name.
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

// usableGUID returns a node GUID that can identify a device, or nothing.
func usableGUID(guid string) string {
	if strings.Trim(guid, "0:") == "" || len(guid) > maxText || !validText.MatchString(guid) {
		return ""
	}
	return strings.ToLower(guid)
}
