package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"

	hide "github.com/railscope/railscope/internal/secret"
)

// Removed replaces a value that must stay on this node.
const Removed = "REMOVED"

// secretKey are keys with secrets as values; a key that ends in _file or _path names a file.
var (
	secretKey = regexp.MustCompile(`(?i)token|passw|secret|credential|bearer|authori[sz]ation|headers|api_?key|` +
		`private_?key`)
	fileKey = regexp.MustCompile(`(?i)_(file|path)$`)
)

// Redacted returns the configuration file at path in a form that may leave the node: without comments, without the
// values of keys that hold secrets, and without the user and password of URLs. Files that it names are not read.
func Redacted(path string) ([]byte, error) {
	data, err := new(Loader).read(path, loadTimeout, readAny)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return redact(data)
}

func redact(data []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, errors.New("not valid YAML") // the parser's message may quote a value
	}
	redactNode(&root, false)
	if root.Kind == 0 {
		return nil, nil // only comments
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&root); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// redactNode removes secrets below n. secret says that all values below n are secret.
func redactNode(n *yaml.Node, secret bool) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		n.Value = hide.HideUserinfo(n.Value, Removed)
		if secret {
			n.Value, n.Tag, n.Style = Removed, "!!str", 0
		}
	}
	for i, child := range n.Content {
		within := secret
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			key := n.Content[i-1].Value
			within = secret || secretKey.MatchString(key) && !fileKey.MatchString(key)
		}
		redactNode(child, within && (n.Kind != yaml.MappingNode || i%2 == 1))
	}
}
