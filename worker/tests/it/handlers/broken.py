"""Cannot be set up."""

from stokehold import endpoint


@endpoint(name="broken")
class Broken:
    def setup(self) -> None:
        raise OSError("no weights here")

    def predict(self) -> None: ...
