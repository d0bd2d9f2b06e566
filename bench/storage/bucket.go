package storage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Bucket is a target in an object store: one object, written in parts.
type Bucket struct {
	core        *minio.Core
	name, key   string
	upload      string
	parts       []minio.CompletePart // one per part, each written by one stream
	begun       bool                 // an upload may exist
	mayBeStored bool
}

// maxParts is the number of parts that S3 allows in one upload.
const maxParts = 10_000

// Open returns the target for a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX.
func Open(ctx context.Context, name string, o Options) (Target, error) {
	scheme, rest, ok := strings.Cut(name, "://")
	if !ok {
		return NewDirectory(name), nil
	}
	if scheme != "s3" && scheme != "gs" || rest == "" {
		return nil, fmt.Errorf("unknown target %q: use a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX", name)
	}
	bucket, prefix, _ := strings.Cut(rest, "/")
	usual := map[string]string{"s3": "https://s3.amazonaws.com", "gs": "https://storage.googleapis.com"}[scheme]
	u, err := url.Parse(cmp.Or(o.Endpoint, usual))
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	if err := plainAllowed(u); err != nil {
		return nil, err
	}
	base, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, err
	}
	settings := minio.Options{Secure: u.Scheme == "https", Creds: s3Credentials(), MaxRetries: 3}
	var transport http.RoundTripper = base
	if scheme == "gs" {
		settings.Creds, transport, err = gcsCredentials(ctx, base)
		if err != nil {
			return nil, err
		}
	}
	settings.Transport = guard{transport}
	core, err := minio.NewCore(u.Host, &settings)
	if err != nil {
		return nil, err
	}
	return &Bucket{core: core, name: bucket, key: path.Join(prefix, newName(), "checkpoint")}, nil
}

// Create starts the upload.
func (b *Bucket) Create(ctx context.Context, size, part int64) (err error) {
	if parts := (size + part - 1) / part; parts > maxParts {
		return fmt.Errorf("%d parts, and S3 allows %d: use a larger --part-size", parts, maxParts)
	}
	b.begun = true
	b.parts = make([]minio.CompletePart, (size+part-1)/part)
	b.upload, err = b.core.NewMultipartUpload(ctx, b.name, b.key, minio.PutObjectOptions{})
	return err
}

// partGrace is the time that a part in flight has to finish after an interruption.
const partGrace = 5 * time.Second

// WritePart uploads one part. After an interruption it still waits up to partGrace for the part: a server may store a
// part whose request was canceled after the abort of the upload, and nothing would remove it (AbortMultipartUpload in
// the S3 API).
func (b *Bucket) WritePart(ctx context.Context, i int, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	interrupted := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(interrupted, func() {
		select {
		case <-time.After(partGrace):
			cancel()
		case <-ctx.Done():
		}
	})()
	p, err := b.core.PutObjectPart(ctx, b.name, b.key, b.upload, i+1, bytes.NewReader(data), int64(len(data)),
		minio.PutObjectPartOptions{})
	b.parts[i] = minio.CompletePart{PartNumber: i + 1, ETag: p.ETag}
	return err
}

// Finish completes the upload.
func (b *Bucket) Finish(ctx context.Context) error {
	b.mayBeStored = true // even if the response is lost
	_, err := b.core.CompleteMultipartUpload(ctx, b.name, b.key, b.upload, b.parts, minio.PutObjectOptions{})
	return err
}

// ReadPart reads the range of one part.
func (b *Bucket) ReadPart(ctx context.Context, _ int, from int64, data []byte) (err error) {
	var o minio.GetObjectOptions
	if err := o.SetRange(from, from+int64(len(data))-1); err != nil {
		return err
	}
	body, _, _, err := b.core.GetObject(ctx, b.name, b.key, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	_, err = io.ReadFull(body, data)
	return err
}

// Remove aborts the upload, even one whose start got no response, and removes the object.
func (b *Bucket) Remove(ctx context.Context) error {
	if !b.begun {
		return nil
	}
	uploads := []string{b.upload}
	if b.upload == "" {
		list, err := b.core.ListMultipartUploads(ctx, b.name, b.key, "", "", "", maxParts)
		if err != nil {
			return nil //nolint:nilerr // listing fails, too: the error of Create has the reason
		}
		uploads = nil
		for _, u := range list.Uploads {
			if u.Key == b.key {
				uploads = append(uploads, u.UploadID)
			}
		}
	}
	var errs []error
	for _, upload := range uploads {
		err := b.core.AbortMultipartUpload(ctx, b.name, b.key, upload)
		if minio.ToErrorResponse(err).Code != "NoSuchUpload" { // otherwise the upload was completed
			errs = append(errs, err)
		}
	}
	if b.mayBeStored {
		errs = append(errs, b.core.RemoveObject(ctx, b.name, b.key, minio.RemoveObjectOptions{}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove %s/%s: %w; remove it by hand", b.name, b.key, err)
	}
	return nil
}

// Describe implements [Target] and adds nothing.
func (b *Bucket) Describe(*Result) {}
