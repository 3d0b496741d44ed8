"""The paper's figures and tables as data, how they are run, and how they are drawn."""
