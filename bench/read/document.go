package read

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// document is a JSON object. A cut one has the members before the cut, and the first part of the last one.
type document struct {
	line    int
	text    []byte
	members map[string]part
	err     error // reason why it was not read to its end
	at      int   // offset of err
	counted int   // offset up to which lines are counted
	lines   int   // number of lines before counted
}

type part struct {
	text  []byte
	line  int
	whole bool
}

func newDocument(line int, text []byte) *document {
	d := &document{line: line, text: text, members: map[string]part{}}
	dec := json.NewDecoder(bytes.NewReader(text))
	d.err = d.read(dec)
	if d.err != nil {
		d.at = len(text)
		if _, ok := errors.AsType[*json.SyntaxError](d.err); ok {
			d.at = min(int(dec.InputOffset()), len(text))
		}
		if errors.Is(d.err, io.EOF) || errors.Is(d.err, io.ErrUnexpectedEOF) {
			d.err, d.at = errors.New("it ends before the object does"), len(text)
		}
	}
	return d
}

func (d *document) read(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil { // opening brace
		return err
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string) // keys are strings
		from := int(dec.InputOffset())
		from += len(d.text[from:]) - len(bytes.TrimLeft(d.text[from:], ": \t\r\n"))
		p := part{text: d.text[from:], line: d.lineAt(from)}
		var value json.RawMessage
		if err = dec.Decode(&value); err == nil {
			p.text, p.whole = value, true
		}
		if _, twice := d.members[key]; !twice {
			d.members[key] = p
		}
		if err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}

// lineAt continues counting from the last call, because a document has many members.
func (d *document) lineAt(offset int) int {
	if offset < d.counted {
		d.counted, d.lines = 0, 0
	}
	d.lines += bytes.Count(d.text[d.counted:offset], []byte("\n"))
	d.counted = offset
	return d.line + d.lines
}

func (d *document) errorLine() int { return d.lineAt(len(bytes.TrimRight(d.text[:d.at], "\n"))) }

func (d *document) has(key string) bool { _, ok := d.members[key]; return ok }

// get decodes a member. It leaves to unchanged if the member is absent, cut or of another type.
func (d *document) get(key string, to any) bool {
	p, ok := d.members[key]
	return ok && p.whole && json.Unmarshal(p.text, to) == nil
}

// list calls each with every object of a list, up to a cut.
func (p part) list(each func(object json.RawMessage, line int) error) error {
	dec := json.NewDecoder(bytes.NewReader(p.text))
	if _, err := dec.Token(); err != nil {
		return err
	}
	line, counted := p.line, 0
	for dec.More() {
		var object json.RawMessage
		if err := dec.Decode(&object); err != nil {
			return err
		}
		from := int(dec.InputOffset()) - len(object)
		line += bytes.Count(p.text[counted:from], []byte("\n"))
		counted = from
		if err := each(object, line); err != nil {
			return err
		}
	}
	return nil
}

// object calls each with every member of an object, in order. Keys may repeat.
func (p part) object(each func(key string, value json.RawMessage, line int)) error {
	dec := json.NewDecoder(bytes.NewReader(p.text))
	if _, err := dec.Token(); err != nil {
		return err
	}
	line, counted := p.line, 0
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		from := int(dec.InputOffset()) - len(value)
		line += bytes.Count(p.text[counted:from], []byte("\n"))
		counted = from
		key, _ := token.(string) // keys are strings
		each(key, value, line)
	}
	return nil
}
