package demo

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseRail parses the name of a rail: rail1, or 1.
func ParseRail(text string) (int, error) {
	for r := range Rails {
		if strings.TrimPrefix(text, "rail") == strconv.Itoa(r) {
			return r, nil
		}
	}
	return 0, fmt.Errorf("there is no rail %q: the demo has rail0 to rail%d", text, Rails-1)
}

// ParseDegrade parses which rail keeps how much of its rate: rail1=0.3.
func ParseDegrade(text string) (r int, part float64, err error) {
	name, value, found := strings.Cut(text, "=")
	if !found {
		return 0, 0, fmt.Errorf("%q must be a rail and the part of its rate that is left, such as rail1=0.3", text)
	}
	if r, err = ParseRail(name); err != nil {
		return 0, 0, err
	}
	if part, err = strconv.ParseFloat(value, 64); err != nil || !(part >= 0.01 && part < 1) {
		return 0, 0, fmt.Errorf("%q must be the part of %s's rate that is left, from 0.01 to less than 1, such as 0.3",
			value, name)
	}
	return r, part, nil
}

// Check says what does not go together.
func (o Options) Check() error {
	if len(o.Fail) >= Rails {
		return fmt.Errorf("all %d rails are to fail: one must be left for the job to go on with", Rails)
	}
	for r := range o.Fail {
		if _, both := o.Degrade[r]; both {
			return fmt.Errorf("rail%d is both to fail and to be slow: choose one", r)
		}
	}
	return nil
}
