package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/probe/options"
)

// figureType is a number with a unit, in the syntax of the configuration.
type figureType interface {
	cmp.Ordered
	fmt.Stringer
	describe() (form, want string) // form for the reference, and want for a message, before the range
}

// errValue is the error of an invalid value. Messages add the key and the form.
var errValue = errors.New("invalid value")

// Duration is a length of time, such as 1m30s.
type Duration time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// String omits the parts that are 0.
func (d Duration) String() string {
	s := time.Duration(d).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func (Duration) describe() (form, want string) {
	return "duration", "a duration such as 90s or 1m30s, "
}

// Count is a whole number.
type Count int

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *Count) UnmarshalText(b []byte) error {
	v, err := strconv.Atoi(string(b))
	*c = Count(v)
	return err
}

func (c Count) String() string { return strconv.Itoa(int(c)) }

func (Count) describe() (form, want string) { return "number", "a whole number, " }

// AutoInt is a whole number, or [options.Auto].
type AutoInt int

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *AutoInt) UnmarshalText(b []byte) error {
	if string(b) == "auto" {
		*a = options.Auto
		return nil
	}
	v, err := strconv.ParseUint(string(b), 10, 31)
	*a = AutoInt(v)
	return err
}

func (a AutoInt) String() string {
	if a == options.Auto {
		return "auto"
	}
	return strconv.Itoa(int(a))
}

func (AutoInt) describe() (form, want string) {
	return "`auto` or number", "auto or a whole number, "
}

// PKey is an InfiniBand partition key; 0 if not set.
type PKey uint16

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *PKey) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 0, 16)
	*k = PKey(v)
	if v&0x7fff == 0 { // bit 15 only marks the port as a full member
		return errValue
	}
	return err
}

func (k PKey) String() string {
	if k == 0 {
		return ""
	}
	return fmt.Sprintf("%#04x", uint16(k))
}

func (PKey) describe() (form, want string) { return "number", "a partition key, " }

// Ratio is a fraction of 1.
type Ratio float64

func (r Ratio) String() string { return fmt.Sprintf("%g", float64(r)) }

func (Ratio) describe() (form, want string) { return "ratio", "a ratio such as 0.2, " }

// Rate is a rate in bytes per second. Its text is in bits per second: 400Gb/s, 2.5Gb/s.
type Rate float64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *Rate) UnmarshalText(b []byte) error {
	scale := 1e9
	number, unit := strings.CutSuffix(string(b), "Gb/s")
	if !unit {
		scale = 1e6
		number, unit = strings.CutSuffix(string(b), "Mb/s")
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !unit {
		return errValue
	}
	*r = Rate(v * scale / 8)
	return nil
}

func (r Rate) String() string {
	if bits := float64(r) * 8; math.Abs(bits) < 1e9 {
		return strconv.FormatFloat(bits/1e6, 'f', -1, 64) + "Mb/s"
	}
	return strconv.FormatFloat(float64(r)*8/1e9, 'f', -1, 64) + "Gb/s"
}

func (Rate) describe() (form, want string) { return "rate", "a rate such as 400Gb/s or 100Mb/s, " }

// Size is a number of bytes, such as 64MiB.
type Size int64

// sizeForm matches a size: its number, its prefix, and the i of binary units.
var sizeForm = regexp.MustCompile(`^([0-9]+)(?:([KMGT])(i?)B|B)?$`)

const prefixes = " KMGT" // the index of a prefix is its power of 1,000 or 1,024

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(b []byte) error {
	m := sizeForm.FindStringSubmatch(string(b))
	if m == nil {
		return errValue
	}
	base, unit := uint64(1000), uint64(1)
	if m[3] != "" {
		base = 1024
	}
	for range strings.Index(prefixes, m[2]) {
		unit *= base
	}
	n, err := strconv.ParseUint(m[1], 10, 63)
	if err != nil || n > math.MaxInt64/unit {
		return errValue
	}
	*s = Size(n * unit)
	return nil
}

// String uses the largest binary unit that divides the size.
func (s Size) String() string {
	unit := ""
	for i := 1; i < len(prefixes) && s != 0 && s%1024 == 0; i++ {
		s, unit = s/1024, prefixes[i:i+1]+"iB"
	}
	return strconv.FormatInt(int64(s), 10) + unit
}

// budget is a share of time, such as 0.5%, or a number of bytes per hour, such as 8GiB/h. One of its fields is 0.
type budget options.Budget

// UnmarshalText implements [encoding.TextUnmarshaler].
func (g *budget) UnmarshalText(b []byte) error {
	if number, isShare := strings.CutSuffix(string(b), "%"); isShare {
		v, err := strconv.ParseFloat(number, 64)
		*g = budget{Share: v / 100}
		return err
	}
	text, per, _ := strings.Cut(string(b), "/")
	var bytes Size
	err := bytes.UnmarshalText([]byte(text))
	switch {
	case err == nil && per == "h":
	case err == nil && per == "d":
		bytes /= 24
	case err == nil && per == "m" && bytes <= math.MaxInt64/60:
		bytes *= 60
	default:
		return errValue
	}
	*g = budget{Bytes: int64(bytes)}
	return nil
}

func (g budget) String() string {
	if g.Share != 0 {
		return strconv.FormatFloat(g.Share*100, 'f', -1, 64) + "%"
	}
	return Size(g.Bytes).String() + "/h"
}

// Limits of a budget. More than 1/4 of a rail's time would disturb jobs.
const (
	minShare  = 0.00001
	maxShare  = 0.25
	minBudget = 1 << 20 // bytes per hour
)

func (g budget) valid() bool {
	return g.Share >= minShare && g.Share <= maxShare || g.Share == 0 && g.Bytes >= minBudget
}
