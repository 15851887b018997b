"""The tools of a release: metadata of all packages, wheels for the platforms of an index, and checks of both."""
