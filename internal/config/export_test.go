package config

// Parse is like [Load] for data that was read from the file name.
func Parse(name string, data []byte) (*Config, error) { return new(Loader).parse(name, data) }
