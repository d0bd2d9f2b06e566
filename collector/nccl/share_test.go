package nccl

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestShare: another user's 40 logs, which always exceed one pass, do not delay a log: it is read in each pass. If
// no other owner has unread lines, one owner may use the whole pass.
func TestShare(t *testing.T) {
	lim := defaultLimits()
	lim.pass = 256 << 10
	l := follow(t, lim)
	for i := range 40 {
		name := fmt.Sprintf("a%02d.log", i) // sorted before the other log
		l.append(name, strings.Repeat("x\n", 1<<17))
		l.owned(4242, name)
	}
	l.append("victim.log", usingIB)
	l.Pass()
	read := func() (n int64) {
		for _, file := range l.f.files {
			n += file.off
		}
		return n
	}
	first := read()
	for i := range 5 {
		for j := range 40 { // rewritten, as by truncate
			l.must(os.WriteFile(l.path(fmt.Sprintf("a%02d.log", j)), []byte(strings.Repeat("y\n", 1<<17)), 0o600))
		}
		l.append("victim.log", timedOut)
		l.Pass()
		l.expect("in each pass", `fallback["victim"] 0`, `network_info["victim" "IB"] 1`,
			fmt.Sprintf(`warnings_total["timeout"] %d`, i+1))
	}
	if first < lim.pass/2 {
		t.Errorf("one pass read %d of %d bytes: the share of the victim was not used by others", first, lim.pass)
	}
}
