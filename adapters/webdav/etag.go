package webdavlock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/net/webdav"
)

// ETagOf returns a function, for WithETag, that makes entity tags for a file system as
// the handler of x/net does.
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
