"""`python -m paramnoise`."""

from paramnoise.cli import entry

if __name__ == "__main__":
    entry()
