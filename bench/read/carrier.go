package read

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// This file removes what surrounds an output: encodings of editors and shells, prefixes of launchers and log
// collectors, notebooks, and log collectors that wrap each line in JSON.

// decode converts a file to UTF-8. PowerShell and Windows' editors write UTF-16.
func decode(r io.Reader) io.Reader {
	in := bufio.NewReaderSize(r, 64<<10)
	start, _ := in.Peek(4) // short files are valid
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(start, []byte{0xff, 0xfe}), len(start) == 4 && start[0] != 0 && start[1] == 0 && start[3] == 0:
		order = binary.LittleEndian
	case bytes.HasPrefix(start, []byte{0xfe, 0xff}), len(start) == 4 && start[0] == 0 && start[1] != 0 && start[2] == 0:
		order = binary.BigEndian
	default:
		return in
	}
	return &utf16Reader{in: in, order: order}
}

type utf16Reader struct {
	in    *bufio.Reader
	order binary.ByteOrder
	rest  []byte // decoded bytes that were not read yet
	err   error
}

func (u *utf16Reader) Read(p []byte) (int, error) {
	for len(u.rest) < len(p) && u.err == nil {
		c := u.unit()
		if utf16.IsSurrogate(c) {
			c = utf16.DecodeRune(c, u.unit())
		}
		if u.err == nil {
			u.rest = utf8.AppendRune(u.rest, c)
		}
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	if n == 0 && len(p) > 0 {
		return 0, u.err
	}
	return n, nil
}

func (u *utf16Reader) unit() rune {
	var two [2]byte
	if _, err := io.ReadFull(u.in, two[:]); err != nil {
		u.err = io.EOF
	}
	return rune(u.order.Uint16(two[:]))
}

// iso matches a time as in kubectl logs --timestamps, CloudWatch, journalctl -o short-iso and GitHub.
const iso = `\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?\]?`

// prefix matches the text that CRI, journald (with and without ISO times), CloudWatch's console, mpirun
// --timestamp-output and --tag-output, srun --label (padded), torchrun, kubectl --prefix, Ray, docker compose and
// quoting put before each line.
var (
	prefix = regexp.MustCompile(`^(?:` +
		iso + ` std(?:out|err) [FP] |` +
		iso + ` [\w.-]+ [\w.@/-]+\[\d+\]: |` +
		`[ \t]*(?:\| )?` + iso + `(?: \| |[ \t]|$)|` +
		`[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? [\w.-]+ [\w.@/-]+(?:\[\d+\])?: |` +
		`[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d \d{4}(?:<\w+>:)? ?|` +
		`\[\d\d:\d\d:\d\d(?:\.\d+)?\] |` +
		`\[(?:[\w.-]+@)?\d+,\d+\](?:<\w+>)?: ?| {0,6}\d+: |` +
		`\[(?:rank|default)\d+\]: ?|\[pod/[\w./-]+\] |` +
		`\([^()]*\bpid=\d+[^()]*\) ?|` +
		`[\w.-]+-\d+ +\| |(?:> ?)+)`)
	suffix = regexp.MustCompile(` \[repeated \d+x across (?:cluster|all nodes)\].*$`) // Ray
	colour = regexp.MustCompile(`\x1b(\[[^@-~]*[@-~]?)?`)
	blanks = strings.NewReplacer("\u00a0", " ", "\u2007", " ", "\u202f", " ", "\u2009", " ", "\ufeff", "", "\u200b", "")
)

// maxPrefixes bounds the prefixes that are removed from a line, such as Ray within kubectl within journald.
const maxPrefixes = 6

func trim(raw string) string {
	raw = strings.TrimRight(raw, "\r\n")
	if strings.IndexByte(raw, 0x1b) >= 0 {
		raw = colour.ReplaceAllString(raw, "")
	}
	if strings.IndexFunc(raw, func(c rune) bool { return c >= utf8.RuneSelf }) >= 0 {
		raw = blanks.Replace(raw)
	}
	for range maxPrefixes {
		n := len(prefix.FindString(raw))
		if n == 0 {
			break
		}
		raw = raw[n:]
	}
	if strings.HasSuffix(raw, ")") || strings.HasSuffix(raw, "]") {
		raw = suffix.ReplaceAllString(raw, "")
	}
	return raw
}

// carried calls each with the texts inside a document, if it is a log record or a notebook; known is false for others.
// apart is true if each text is complete, rather than continued by the next.
func (d *document) carried(each func(text string, line int)) (apart, known bool) {
	if d.has("nbformat") && d.has("cells") {
		d.outputs(each)
		return true, true
	}
	var text string
	for _, pair := range [][2]string{{"log", "stream"}, {"log", "time"}, {"message", "timestamp"}, {"message", "time"},
		{"MESSAGE", "__REALTIME_TIMESTAMP"}, {"MESSAGE", "_HOSTNAME"}, {"MESSAGE", "_PID"}, {"message", "@timestamp"},
		{"@message", "@timestamp"}, {"textPayload", "timestamp"}, {"msg", "time"}} {
		if d.has(pair[1]) && d.get(pair[0], &text) { // docker, CloudWatch, journalctl -o json, Google Cloud
			each(text, d.line)
			return false, true
		}
	}
	if events, ok := d.members["events"]; ok && !d.has("start") { // aws logs get-log-events
		found := false
		err := events.list(func(object json.RawMessage, line int) error {
			var event struct {
				Message *string `json:"message"`
			}
			if json.Unmarshal(object, &event) == nil && event.Message != nil {
				found = true
				each(*event.Message, line)
			}
			return nil
		})
		return false, found && err == nil
	}
	return false, false
}

// outputs calls each with the outputs of a notebook's cells (nbformat 4), one text per output.
func (d *document) outputs(each func(text string, line int)) {
	cells := d.members["cells"]
	_ = cells.list(func(object json.RawMessage, line int) error { // a cut notebook is an error of its document
		var cell struct {
			Outputs []struct {
				Text lines `json:"text"`
				Data struct {
					Plain lines `json:"text/plain"`
				} `json:"data"`
			} `json:"outputs"`
		}
		if json.Unmarshal(object, &cell) != nil {
			return nil // cells of another form have no outputs
		}
		for _, out := range cell.Outputs {
			if text := string(out.Text + out.Data.Plain); text != "" {
				each(text, line)
			}
		}
		return nil
	})
}

// lines decodes a text, or a list of its lines.
type lines string

func (l *lines) UnmarshalJSON(data []byte) error {
	var list []string
	if json.Unmarshal(data, &list) == nil {
		*l = lines(strings.Join(list, ""))
		return nil
	}
	return json.Unmarshal(data, (*string)(l))
}
