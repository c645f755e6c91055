package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// The modules below the root have dependencies that a machine may not have fetched; the page is compared for those
// that it has.
func TestThePageHasTheDependenciesOfEachReleasedModule(t *testing.T) {
	written, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	all, err := released(root)
	require.NoError(t, err)
	require.Greater(t, len(all), 7)
	for _, m := range all {
		t.Run(m, func(t *testing.T) {
			if m != "." {
				t.Setenv("GOPROXY", "off")
				t.Setenv("GOFLAGS", "-mod=readonly")
			}
			section, err := sectionOf(root, m)
			if m != "." && err != nil && strings.Contains(err.Error(), "GOPROXY=off") {
				t.Skip("needs modules, which this machine has not fetched: make licences")
			}
			require.NoError(t, err)
			assert.True(t, strings.Contains(string(written)+"\n## ", section+"\n## "), "out of date: make licences\n%s", section) //nolint:testifylint // which would print the page
		})
	}
}

func TestALicenceIsKnownByItsWordsAndAnUnknownOneIsAnError(t *testing.T) {
	dir := t.TempDir()
	_, err := licenceIn(dir)
	require.Error(t, err)
	file := filepath.Join(dir, "LICENSE.txt")
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":                                         "Apache-2.0",
		"MIT\n\nPermission is hereby granted, free\nof charge, to any person obtaining a copy": "MIT",
		"Redistributions in binary form must reproduce\n... Neither the name of Google":        "BSD-3-Clause",
		"Redistributions in binary form must reproduce the above":                              "BSD-2-Clause",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		licence, err := licenceIn(dir)
		require.NoError(t, err)
		assert.Equal(t, want, licence)
	}
	require.NoError(t, os.WriteFile(file, []byte("All rights reserved."), 0o600))
	_, err = licenceIn(dir)
	require.ErrorContains(t, err, "no licence")
}
