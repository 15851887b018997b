"""What a release needs: the metadata of all packages, wheels for the platforms of an index, and the checks of both."""
