package webdav

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/net/webdav"
)

// ETagOf answers entity tags as the handler of x/net makes them for a file system.
func ETagOf(files webdav.FileSystem) func(ctx context.Context, name string) (string, error) {
	return func(ctx context.Context, name string) (string, error) {
		info, err := files.Stat(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if own, ok := info.(webdav.ETager); ok {
			etag, err := own.ETag(ctx)
			if !errors.Is(err, webdav.ErrNotImplemented) {
				return etag, err
			}
		}
		return fmt.Sprintf(`"%x%x"`, info.ModTime().UnixNano(), info.Size()), nil
	}
}
