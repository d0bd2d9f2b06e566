package sysfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// outcome is a number, or the reason why there is none.
type outcome struct {
	Value  uint64
	Reason string
}

func outcomeOf(v uint64, err error) outcome {
	if err != nil {
		return outcome{v, sysfs.Reason(err)}
	}
	return outcome{v, ""}
}

func TestParseUint(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want outcome
	}{
		{"0\n", outcome{0, ""}},
		{"42", outcome{42, ""}},
		{" \t7 \n", outcome{7, ""}},
		{"007\n", outcome{7, ""}},
		{"4294967296\n", outcome{1 << 32, ""}},
		{"18446744073709551615\n", outcome{1<<64 - 1, ""}},
		{"18446744073709551616\n", outcome{0, sysfs.ReasonRange}},
		{"20000000000000000000\n", outcome{0, sysfs.ReasonRange}},
		{strings.Repeat("9", 100), outcome{0, sysfs.ReasonRange}},
		{strings.Repeat("0", 100) + "1", outcome{1, ""}},
		{"", outcome{0, sysfs.ReasonEmpty}},
		{" \n\t", outcome{0, sysfs.ReasonEmpty}},
		{"N/A\n", outcome{0, sysfs.ReasonInvalid}},
		{"N/A (no PMA)\n", outcome{0, sysfs.ReasonInvalid}},
		{"-1\n", outcome{0, sysfs.ReasonInvalid}},
		{"+1\n", outcome{0, sysfs.ReasonInvalid}},
		{"0x10\n", outcome{0, sysfs.ReasonInvalid}},
		{"1_000\n", outcome{0, sysfs.ReasonInvalid}},
		{"1.5\n", outcome{0, sysfs.ReasonInvalid}},
		{"12 34\n", outcome{0, sysfs.ReasonInvalid}},
		{"12\n34\n", outcome{0, sysfs.ReasonInvalid}},
		{"12\x00", outcome{0, sysfs.ReasonInvalid}},
		{"\x00\x01\xfe\xff", outcome{0, sysfs.ReasonInvalid}},
		{"\u0664\u0662", outcome{0, sysfs.ReasonInvalid}}, // digits, but not ASCII digits
	} {
		t.Run(strconv.Quote(tt.in), func(t *testing.T) {
			if diff := cmp.Diff(tt.want, outcomeOf(sysfs.ParseUint([]byte(tt.in)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseCounter(t *testing.T) {
	for in, want := range map[string]outcome{
		"42\n":            {42, ""},
		"N/A (no PMA)\n":  {0, sysfs.ReasonUnsupported},
		"n/a":             {0, sysfs.ReasonUnsupported},
		" Not supported ": {0, sysfs.ReasonUnsupported},
		"not available\n": {0, sysfs.ReasonUnsupported},
		"no":              {0, sysfs.ReasonInvalid},
		"":                {0, sysfs.ReasonEmpty},
		"-1":              {0, sysfs.ReasonInvalid},
	} {
		if diff := cmp.Diff(want, outcomeOf(sysfs.ParseCounter([]byte(in)))); diff != "" {
			t.Errorf("%q: %s", in, diff)
		}
	}
}

// The message quotes the file, whose content can be long.
func TestParseUintQuotesLittle(t *testing.T) {
	_, err := sysfs.ParseUint([]byte(strings.Repeat("x", 5000)))
	if n := len(err.Error()); n > 120 {
		t.Errorf("a message of %d bytes: %v", n, err)
	}
}

func FuzzParseUint(f *testing.F) {
	for _, s := range []string{"0", "18446744073709551615", "18446744073709551616", "N/A", " 1\n", "-1", "+1", "0x1",
		"1_0", "\x00", "\u00a01"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := sysfs.ParseUint(b)
		trimmed := strings.TrimSpace(string(b))
		want, wantErr := strconv.ParseUint(trimmed, 10, 64)
		if strings.HasPrefix(trimmed, "+") {
			wantErr = strconv.ErrSyntax
		}
		if wantErr != nil {
			want = 0
		}
		if got != want || (err == nil) != (wantErr == nil) {
			t.Fatalf("ParseUint(%q) = %d, %v; strconv says %d, %v", b, got, err, want, wantErr)
		}
		if reason := sysfs.Reason(err); err != nil && errors.Is(wantErr,
			strconv.ErrRange) != (reason == sysfs.ReasonRange) {
			t.Fatalf("ParseUint(%q): reason %s; strconv says %v", b, reason, wantErr)
		}
	})
}

func TestReason(t *testing.T) {
	path := func(errno error) error { return &fs.PathError{Op: "open", Path: "/x", Err: errno} }
	for _, tt := range []struct {
		err  error
		want string
	}{
		{unix.ENOENT, sysfs.ReasonVanished},
		{unix.ENODEV, sysfs.ReasonVanished},
		{unix.ENXIO, sysfs.ReasonVanished},
		{unix.ENOTDIR, sysfs.ReasonVanished},
		{unix.ESTALE, sysfs.ReasonVanished},
		{unix.ESRCH, sysfs.ReasonVanished},
		{unix.EACCES, sysfs.ReasonPermission},
		{unix.EPERM, sysfs.ReasonPermission},
		{unix.EINVAL, sysfs.ReasonUnsupported},
		{unix.EOPNOTSUPP, sysfs.ReasonUnsupported},
		// get_perf_mad of drivers/infiniband/core/sysfs.c, without process_mad
		{unix.ENOSYS, sysfs.ReasonUnsupported},
		{unix.Errno(524), sysfs.ReasonUnsupported}, // ENOTSUPP of include/linux/errno.h
		{unix.EISDIR, sysfs.ReasonNotRegular},
		{unix.EIO, sysfs.ReasonIO},
		{unix.EMFILE, sysfs.ReasonIO},
		{unix.ETIMEDOUT, sysfs.ReasonIO},
		{unix.ELOOP, sysfs.ReasonIO},
		{errors.New("anything else"), sysfs.ReasonIO},
		{path(unix.ENODEV), sysfs.ReasonVanished},
		{fmt.Errorf("port 1: %w", path(unix.EACCES)), sysfs.ReasonPermission},
		{fmt.Errorf("port 1: %w", sysfs.Fail("/x", unix.EINVAL)), sysfs.ReasonUnsupported},
		{&sysfs.Error{Reason: sysfs.ReasonTimeout, Err: unix.ENOENT}, sysfs.ReasonTimeout}, // the outer one applies
	} {
		if got := sysfs.Reason(tt.err); got != tt.want {
			t.Errorf("Reason(%v) = %s, want %s", tt.err, got, tt.want)
		}
	}
}

func TestReadOnceFunctions(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "fw_ver"), " 28.39.1002 \n")
	write(t, filepath.Join(dir, "empty"), "")
	write(t, filepath.Join(dir, "page"), strings.Repeat("p", sysfs.MaxFile))
	write(t, filepath.Join(dir, "more"), strings.Repeat("m", sysfs.MaxFile+1))
	type result struct{ Text, Reason string }
	for _, tt := range []struct {
		name string
		want result
	}{
		{"fw_ver", result{"28.39.1002", ""}},
		{"empty", result{"", ""}}, // an empty word is valid; an empty number is not
		{"page", result{strings.Repeat("p", sysfs.MaxFile), ""}},
		{"more", result{"", sysfs.ReasonTooLarge}},
		{"absent", result{"", sysfs.ReasonVanished}},
	} {
		got := result{}
		var err error
		got.Text, err = sysfs.ReadString(dir, tt.name)
		if err != nil {
			got.Reason = sysfs.Reason(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("ReadString(%s): %s", tt.name, diff)
		}
	}
	if diff := cmp.Diff(outcome{0, sysfs.ReasonEmpty}, outcomeOf(sysfs.ReadUint(dir, "empty"))); diff != "" {
		t.Error(diff)
	}
	_, err := sysfs.ReadUint(dir, "fw_ver")
	if want := "read " + dir + `/fw_ver: "28.39.1002" is not an unsigned decimal number`; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestLive(t *testing.T) {
	var st unix.Statfs_t
	sys := unix.Statfs("/sys", &st) == nil && st.Type == unix.SYSFS_MAGIC
	for path, want := range map[string]bool{"/sys": sys, "/sys/class": sys, t.TempDir(): false,
		filepath.Join(t.TempDir(), "absent"): false} {
		if got := sysfs.Live(path); got != want {
			t.Errorf("Live(%s) = %v, want %v", path, got, want)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// listenUnix makes a socket file.
func listenUnix(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}
