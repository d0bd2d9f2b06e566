package scrape

// ErrorsMost is for tests from outside.
const ErrorsMost = errorsMost
