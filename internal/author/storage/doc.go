// Package storage keeps component versions in registries and in archives (Common Transport Format), and copies and
// signs them there.
//
//	from, err := storage.Open("./sample.ctf", storage.Access{}, false)
//	to, err := storage.Open("registry.example.com/modules", storage.Access{}, false)
//	copied, err := storage.Copy(ctx, from, to, storage.CopyOptions{Images: true})
//	signed, err := storage.Sign(ctx, to, storage.SignOptions{…})
//	verified, err := storage.Verify(ctx, to, true)
//
// # How it works
//
// A [Place] is an archive or a registry. An archive is read by the same registry client: it implements
// http.RoundTripper and answers the requests of the client itself, see [Archive.RoundTrip]. So there is one
// implementation of reading, verifying and copying. Large blobs of an archive, such as layers of images, are never
// completely in memory.
//
// [Copy] copies images to repositories whose names follow from the original names. It does not change manifests: the
// component descriptor names the images at their new place, and the manager replaces them in workloads at installation.
// Images that the manager will not replace are reported as [OldName].
//
// # What it does not do
//
// It copies no signatures of images, and follows no component references.
package storage
