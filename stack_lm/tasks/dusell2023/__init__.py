"""The languages of DuSell and Chiang (2023): languages that are not context-free, or have many symbol types."""
