// Package storage stores component versions in registries and in archives (Common Transport Format). The package also
// copies, signs and verifies component versions.
//
//	from, err := storage.Open("./sample.ctf", storage.Access{}, false)
//	to, err := storage.Open("registry.example.com/modules", storage.Access{}, false)
//	copied, err := storage.Copy(ctx, from, to, storage.CopyOptions{Images: true})
//	signed, err := storage.Sign(ctx, to, storage.SignOptions{…})
//	verified, err := storage.Verify(ctx, to, true)
//
// # How it works
//
// A [Place] is an archive or a registry. The same registry client reads archives and registries: an archive implements
// http.RoundTripper and answers the requests of the client, see [Archive.RoundTrip]. Therefore reading, verifying and
// copying are implemented only once for archives and registries. A large blob of an archive, such as a layer of an
// image, is never completely in memory.
//
// [Copy] derives the repository of a copied image from the original name of the image. [Copy] does not change manifests
// of the module. The component descriptor of a copied version contains the locations of the copied images. When the
// manager installs the module, it writes these locations into the workloads. If the manager does not replace an image
// of an object, Copy reports the image by its old name ([OldName]).
//
// # What it does not do
//
// The package does not copy signatures of images, and does not follow component references.
package storage
